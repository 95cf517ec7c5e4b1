/* Spawns this program by PMI-2 and reads what it put, by connecting to its job. With an argument the spawned program
   dies of a signal. */
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
#define REQUIRE(condition)                                            \
    do {                                                              \
        if (!(condition)) {                                           \
            fprintf(stderr, "line %d: not %s\n", __LINE__, #condition); \
            exit(4);                                                  \
        }                                                             \
    } while (0)

static void child(int rank, int size, const char *death)
{
    char key[64], value[PMI2_MAX_VALLEN + 1], job[300];
    int length;

    REQUIRE(size == 2);
    if (strcmp(death, "none") && rank == 1) {
        raise(SIGKILL);
    }
    CHECK(PMI2_Job_GetId(job, sizeof job));
    CHECK(PMI2_KVS_Get(job, PMI2_ID_NULL, "greeting", value, sizeof value, &length));
    REQUIRE(!strcmp(value, "a;b=c d"));
    snprintf(key, sizeof key, "child-%d", rank);
    CHECK(PMI2_KVS_Put(key, "here; I am"));
    CHECK(PMI2_KVS_Fence());
    printf("child %d of %d is content\n", rank, size);
    /* Their key-value space lives as long as they do. */
    while (PMI2_Nameserv_lookup("done", NULL, value, sizeof value) != PMI2_SUCCESS) {
        usleep(10000);
    }
}

int main(int argc, char **argv)
{
    int spawned, size, rank, appnum;

    CHECK(PMI2_Init(&spawned, &size, &rank, &appnum));
    if (spawned) {
        child(rank, size, argv[1]);
    } else if (rank == 0) {
        char job[300], value[PMI2_MAX_VALLEN + 1];
        int errors[2] = {9, 9}, count = 1, maxprocs = 2, infos = 0, length;
        const char *commands[] = {argv[0]}, *list[] = {argc > 1 ? argv[1] : "none", NULL};
        const char **arguments[] = {list};
        struct MPID_Info preput;
        memset(&preput, 0, sizeof preput);
        preput.key = "greeting";
        preput.value = "a;b=c d";
        const struct MPID_Info *preputs[] = {&preput};
        CHECK(PMI2_Job_Spawn(1, commands, &count, arguments, &maxprocs, &infos, NULL, 1, preputs, job,
                             sizeof job, errors));
        REQUIRE(strlen(job) > 0);
        CHECK(PMI2_Job_Connect(job, NULL));
        for (int other = 0; other < 2; other++) {
            char key[64];
            snprintf(key, sizeof key, "child-%d", other);
            while (PMI2_KVS_Get(job, other, key, value, sizeof value, &length) != PMI2_SUCCESS) {
                usleep(10000);
            }
            REQUIRE(!strcmp(value, "here; I am"));
        }
        CHECK(PMI2_Job_Disconnect(job));
        CHECK(PMI2_Nameserv_publish("done", NULL, "yes"));
        printf("parent is content\n");
    }
    CHECK(PMI2_Finalize());
    return 0;
}
