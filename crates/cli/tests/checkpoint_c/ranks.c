/*
 * Several ranks that compute on each other's values and save together: rank 0 has the advisor, and all save what it says.
 *
 *     ranks DIRECTORY STEPS
 */
#include <pmi.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "rw_checkpoint.h"

#define CHECK(expression)                                                                            \
    do {                                                                                             \
        int status = (expression);                                                                   \
        if (status != 0) {                                                                           \
            fprintf(stderr, "line %d: %s gives %d: %s\n", __LINE__, #expression, status,             \
                    rw_checkpoint_error());                                                          \
            exit(3);                                                                                 \
        }                                                                                            \
    } while (0)

static char space[300];

/* What each rank says at this step, for all others. */
static void say(const char *what, int rank, int from, unsigned long step, unsigned long value)
{
    char key[64], text[32];
    snprintf(key, sizeof key, "%s-%d-%d-%lu", what, from, rank, step);
    snprintf(text, sizeof text, "%lu", value);
    CHECK(PMI_KVS_Put(space, key, text));
}

static unsigned long hear(const char *what, int rank, int from, unsigned long step)
{
    char key[64], text[64];
    snprintf(key, sizeof key, "%s-%d-%d-%lu", what, from, rank, step);
    CHECK(PMI_KVS_Get(space, key, text, sizeof text));
    return strtoul(text, NULL, 10);
}

int main(int count, char **words)
{
    int spawned, rank, ranks;
    if (count != 3)
        return 2;
    unsigned long steps = strtoul(words[2], NULL, 10), step = 0, value;
    CHECK(PMI_Init(&spawned));
    CHECK(PMI_Get_rank(&rank));
    CHECK(PMI_Get_size(&ranks));
    CHECK(PMI_KVS_Get_my_name(space, sizeof space));
    value = rank + 1;

    rw_checkpoint_store_options where = RW_CHECKPOINT_STORE_OPTIONS;
    where.directory = words[1];
    where.rank = rank;
    where.ranks = ranks;
    rw_checkpoint_store *store;
    rw_checkpoint_restored restored;
    const char *attempt = getenv("ROPEWALK_CHECKPOINT_START");
    CHECK(rw_checkpoint_store_open(&where, &store));
    CHECK(rw_checkpoint_store_restore_shared(store, attempt ? attempt : "alone", 30, &restored));
    rw_checkpoint_advisor *advisor = NULL;
    if (rank == 0)
        CHECK(rw_checkpoint_advisor_open(NULL, NULL, &advisor));
    if (restored.found) {
        char path[4096];
        unsigned long saved[2];
        snprintf(path, sizeof path, "%s/value", restored.folder);
        FILE *file = fopen(path, "rb");
        if (!file || fread(saved, sizeof saved, 1, file) != 1 || saved[0] != restored.step) {
            fprintf(stderr, "rank %d: %s is not what was saved at step %lu\n", rank, path,
                    (unsigned long)restored.step);
            return 4;
        }
        fclose(file);
        step = saved[0];
        value = saved[1];
        if (advisor)
            CHECK(rw_checkpoint_restored_end(advisor));
    }
    while (step < steps) {
        struct timespec pause = {0, 3000000};
        rw_checkpoint_decision decision = {0};
        nanosleep(&pause, NULL);
        say("value", 0, rank, step, value);
        CHECK(PMI_Barrier());
        /* Whoever is a step behind the others would compute something else. */
        value = value * 31 + hear("value", 0, (rank + 1) % ranks, step);
        step++;
        if (advisor) {
            CHECK(rw_checkpoint_step_end(advisor, &decision));
            say("save", 0, 0, step, decision.save);
        }
        CHECK(PMI_Barrier());
        if (!hear("save", 0, 0, step))
            continue;
        char path[4096];
        unsigned long state[2] = {step, value};
        rw_checkpoint_save *save;
        if (advisor)
            CHECK(rw_checkpoint_save_begin(advisor, decision.level));
        CHECK(rw_checkpoint_store_begin(store, step, &save));
        snprintf(path, sizeof path, "%s/value", rw_checkpoint_save_folder(save));
        FILE *file = fopen(path, "wb");
        if (!file || fwrite(state, sizeof state, 1, file) != 1)
            return 5;
        fclose(file);
        CHECK(rw_checkpoint_store_commit(store, save));
        CHECK(PMI_Barrier());
        if (advisor)
            CHECK(rw_checkpoint_save_end(advisor, decision.level));
        CHECK(rw_checkpoint_store_retire(store));
    }
    printf("rank %d has %lu\n", rank, value);
    if (advisor)
        CHECK(rw_checkpoint_advisor_close(advisor, 1));
    CHECK(rw_checkpoint_store_close(store));
    CHECK(PMI_Finalize());
    return 0;
}
