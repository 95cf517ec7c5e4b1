/* Rank 1 dies at first; the others' fences fail until it is back, and then all get what its second life put. */
#include <pmi2.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(expression)                                                            \
    do {                                                                             \
        int status = (expression);                                                   \
        if (status != PMI2_SUCCESS) {                                                \
            fprintf(stderr, "line %d: %s gives %d\n", __LINE__, #expression, status); \
            exit(3);                                                                 \
        }                                                                            \
    } while (0)

int main(void)
{
    int spawned, size, rank, appnum, length, failed = 0;
    char job[300], value[PMI2_MAX_VALLEN + 1];
    const char *incarnation = getenv("ROPEWALK_INCARNATION");

    CHECK(PMI2_Init(&spawned, &size, &rank, &appnum));
    CHECK(PMI2_Job_GetId(job, sizeof job));
    if (rank == 1) {
        if (!incarnation || !strcmp(incarnation, "0")) {
            raise(SIGKILL);
        }
        CHECK(PMI2_KVS_Put("second", incarnation));
    }
    while (PMI2_KVS_Fence() != PMI2_SUCCESS) {
        failed = 1;
        usleep(10000);
    }
    CHECK(PMI2_KVS_Get(job, 1, "second", value, sizeof value, &length));
    printf("rank %d got %s%s\n", rank, value, failed ? " after a failed fence" : "");
    CHECK(PMI2_Finalize());
    return 0;
}
