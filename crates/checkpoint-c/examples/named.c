/*
 * Heat that spreads along a rod, computed by a program that may be killed at any moment and goes on where it was.
 *
 *     named DIRECTORY STEPS [KILL]
 *
 * Prints a hash of the temperatures, which does not depend on how often it was killed, and before, to standard error, where it
 * begins. With KILL it kills itself after so many
 * steps of this start.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "rw_checkpoint.h"

#define CELLS 5000

static double u[CELLS], next[CELLS];

static int failed(void)
{
    fprintf(stderr, "named: %s\n", rw_checkpoint_error());
    return EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    rw_run_options options = RW_RUN_OPTIONS;
    rw_run *run;
    uint64_t step = 0, shape[] = { CELLS }, steps, done = 0, kill = 0, hash = 14695981039346656037u;
    double heat = 0;
    const char *error;
    int i, status;

    if (argc < 3) {
        fprintf(stderr, "named DIRECTORY STEPS [KILL]\n");
        return 2;
    }
    steps = strtoull(argv[2], NULL, 10);
    if (argc > 3)
        kill = strtoull(argv[3], NULL, 10);
    options.mtbf = 0.05;
    u[0] = 100;
    if (rw_resume(argv[1], &options, &run) || rw_protect(run, "u", u, RW_FLOAT64, sizeof *u, 1, shape)
        || rw_protect(run, "heat", &heat, RW_FLOAT64, sizeof heat, 0, NULL)
        || rw_restore(run, &step))
        return failed();
    fprintf(stderr, "from step %" PRIu64 "\n", step);
    while ((status = rw_step(run, steps, &step)) == RW_CHECKPOINT_OK && step < steps) {
        for (i = 1; i < CELLS - 1; i++)
            next[i] = u[i] + 0.4 * (u[i - 1] - 2 * u[i] + u[i + 1]);
        for (i = 1; i < CELLS - 1; i++)
            heat += u[i] = next[i];
        if (kill > 0 && ++done == kill)
            raise(SIGKILL);
        if ((error = rw_save_error(run)) != NULL)
            fprintf(stderr, "named: not saved: %s\n", error);
    }
    if (status != RW_CHECKPOINT_OK)
        failed();
    if (rw_close(run, status == RW_CHECKPOINT_OK) != RW_CHECKPOINT_OK)
        status = failed();
    for (i = 0; i < CELLS; i++)
        hash = (hash ^ (uint64_t)(u[i] * 1e12)) * 1099511628211u;
    printf("%016" PRIx64 " %.17g after %" PRIu64 "\n", hash, heat, step);
    return status == RW_CHECKPOINT_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
