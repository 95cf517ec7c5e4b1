/*
 * Heat that spreads along a rod, computed by a program that may be killed at any moment and goes on where it was.
 *
 *     heat DIRECTORY STEPS [MTBF]
 *
 * Writes at the end a sum of the temperatures, which does not depend on how often it was killed. With an MTBF, in seconds,
 * it kills itself at random, once in that time on average.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "rw_checkpoint.h"

#define CELLS 20000

static double rod[CELLS], next[CELLS];

static void check(int status, const char *what)
{
    if (status != RW_CHECKPOINT_OK) {
        fprintf(stderr, "heat: %s: %s\n", what, rw_checkpoint_error());
        exit(1);
    }
}

static FILE *open_in(const char *folder, const char *mode)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/rod", folder);
    FILE *file = fopen(path, mode);
    if (!file) {
        perror(path);
        exit(1);
    }
    return file;
}

static void compute(void)
{
    for (int i = 1; i < CELLS - 1; i++)
        next[i] = rod[i] + 0.25 * (rod[i - 1] - 2 * rod[i] + rod[i + 1]);
    memcpy(rod + 1, next + 1, (CELLS - 2) * sizeof *rod);
}

int main(int count, char **words)
{
    if (count < 3) {
        fprintf(stderr, "usage: heat DIRECTORY STEPS [MTBF]\n");
        return 2;
    }
    uint64_t steps = strtoull(words[2], NULL, 10);
    double mtbf = count > 3 ? atof(words[3]) : 0;
    srand48((long)time(NULL) ^ ((long)getpid() << 16));

    rw_checkpoint_store_options where = RW_CHECKPOINT_STORE_OPTIONS;
    where.directory = words[1];
    rw_checkpoint_store *store;
    check(rw_checkpoint_store_open(&where, &store), "open the store");

    char journal[4096];
    snprintf(journal, sizeof journal, "%s/journal", words[1]);
    rw_checkpoint_advisor_options how = RW_CHECKPOINT_ADVISOR_OPTIONS;
    how.mtbf = mtbf;
    how.save = 0.001;
    rw_checkpoint_advisor *advisor;
    check(rw_checkpoint_advisor_open(&how, journal, &advisor), "open the advisor");

    rw_checkpoint_restored restored;
    check(rw_checkpoint_store_restore(store, &restored), "restore");
    uint64_t step = 0;
    rod[0] = 100;
    if (restored.found) {
        FILE *file = open_in(restored.folder, "rb");
        if (fread(rod, sizeof *rod, CELLS, file) != CELLS) {
            fprintf(stderr, "heat: the file is too short\n");
            return 1;
        }
        fclose(file);
        step = restored.step;
        check(rw_checkpoint_restored_end(advisor), "say that the state is restored");
    }

    double die_at = mtbf > 0 ? -mtbf * log(1 - drand48()) : INFINITY;
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    while (step < steps) {
        compute();
        step++;
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec - start.tv_sec + 1e-9 * (now.tv_nsec - start.tv_nsec) > die_at)
            raise(SIGKILL);
        rw_checkpoint_decision decision;
        check(rw_checkpoint_step_end(advisor, &decision), "end a step");
        if (!decision.save)
            continue;
        rw_checkpoint_save *save;
        check(rw_checkpoint_save_begin(advisor, decision.level), "begin a save");
        check(rw_checkpoint_store_begin(store, step, &save), "begin a generation");
        check(rw_checkpoint_save_level(save, decision.level), "say of which level it is");
        FILE *file = open_in(rw_checkpoint_save_folder(save), "wb");
        int is_written = fwrite(rod, sizeof *rod, CELLS, file) == CELLS;
        /* What is still in the buffer may not fit either. */
        if (fclose(file) != 0)
            is_written = 0;
        if (!is_written) {
            perror("heat: not saved");
            check(rw_checkpoint_store_abandon(store, save), "abandon a save");
            check(rw_checkpoint_save_failed(advisor, decision.level), "say that a save failed");
        } else if (rw_checkpoint_store_commit(store, save) == RW_CHECKPOINT_OK) {
            check(rw_checkpoint_save_end(advisor, decision.level), "end a save");
            check(rw_checkpoint_store_retire(store), "remove old generations");
        } else {
            fprintf(stderr, "heat: not saved: %s\n", rw_checkpoint_error());
            check(rw_checkpoint_save_failed(advisor, decision.level), "say that a save failed");
        }
    }
    check(rw_checkpoint_advisor_close(advisor, 1), "close the advisor");
    check(rw_checkpoint_store_close(store), "close the store");

    double sum = 0;
    for (int i = 0; i < CELLS; i++)
        sum += rod[i];
    printf("%.17g\n", sum);
    return 0;
}
