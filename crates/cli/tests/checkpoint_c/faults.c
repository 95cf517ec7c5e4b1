/*
 * A program with a fault of its own.
 *
 *     faults raise    saves each 10th step, and ends with code 3 at the 20th
 *     faults unsaved  saves at its 3rd step, and fails to from then on
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rw_checkpoint.h"

static void check(int status, const char *what)
{
    if (status != RW_CHECKPOINT_OK) {
        fprintf(stderr, "faults: %s: %s\n", what, rw_checkpoint_error());
        exit(1);
    }
}

static void save(rw_checkpoint_store *store, rw_checkpoint_advisor *advisor, uint64_t step)
{
    rw_checkpoint_save *save;
    check(rw_checkpoint_save_begin(advisor, RW_CHECKPOINT_FULL), "begin");
    check(rw_checkpoint_store_begin(store, step, &save), "begin");
    char path[4096];
    snprintf(path, sizeof path, "%s/state", rw_checkpoint_save_folder(save));
    FILE *file = fopen(path, "w");
    fclose(file);
    check(rw_checkpoint_store_commit(store, save), "commit");
    check(rw_checkpoint_store_retire(store), "retire");
    check(rw_checkpoint_save_end(advisor, RW_CHECKPOINT_FULL), "end");
}

int main(int count, char **words)
{
    int raises = count > 1 && strcmp(words[1], "raise") == 0;
    rw_checkpoint_store_options where = RW_CHECKPOINT_STORE_OPTIONS;
    rw_checkpoint_store *store;
    check(rw_checkpoint_store_open(&where, &store), "open the store");
    rw_checkpoint_advisor *advisor;
    check(rw_checkpoint_advisor_open(NULL, NULL, &advisor), "open the advisor");
    rw_checkpoint_restored restored;
    check(rw_checkpoint_store_restore(store, &restored), "restore");
    uint64_t step = 0;
    if (restored.found) {
        step = restored.step;
        check(rw_checkpoint_restored_end(advisor), "restore");
    }
    while (step < 30) {
        usleep(60000);
        step++;
        if (raises && step == 20)
            return 3;
        rw_checkpoint_decision decision;
        check(rw_checkpoint_step_end(advisor, &decision), "decide");
        if (raises ? step % 10 == 0 : step == 3)
            save(store, advisor, step);
        else if (!raises && step % 3 == 0) {
            check(rw_checkpoint_save_begin(advisor, RW_CHECKPOINT_FULL), "begin");
            check(rw_checkpoint_save_failed(advisor, RW_CHECKPOINT_FULL), "fail");
        }
    }
    check(rw_checkpoint_advisor_close(advisor, 1), "close");
    check(rw_checkpoint_store_close(store), "close");
    return 0;
}
