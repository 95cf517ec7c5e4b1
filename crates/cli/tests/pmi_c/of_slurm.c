/* Every process does with Slurm's library what programs do with it, and says whose library that is. */
#define _GNU_SOURCE
#include <slurm/pmi2.h>

#include <dlfcn.h>
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

static const char *values[] = {"plain", "with space ", "a b=c;d%e", "=", ";;", "\\ \t\n \xc3\xa4"};
#define VALUES (sizeof values / sizeof *values)

int main(void)
{
    int spawned, size, rank, appnum, found, length, number;
    char job[300], key[PMI2_MAX_KEYLEN], value[PMI2_MAX_VALLEN + 1], left[32], right[32];
    Dl_info library;

    REQUIRE(!PMI2_Initialized());
    CHECK(PMI2_Init(&spawned, &size, &rank, &appnum));
    REQUIRE(PMI2_Initialized() && !spawned && appnum == 0);
    REQUIRE(rank == atoi(getenv("RANK")) && size == atoi(getenv("WORLD_SIZE")));
    CHECK(PMI2_Job_GetRank(&number));
    REQUIRE(number == rank);
    CHECK(PMI2_Info_GetSize(&number));
    REQUIRE(number >= 1);
    CHECK(PMI2_Job_GetId(job, sizeof job));
    REQUIRE(job[0]);

    CHECK(PMI2_Info_GetJobAttr("PMI_process_mapping", value, sizeof value, &found));
    REQUIRE(found && strncmp(value, "(vector,(", 9) == 0);
    CHECK(PMI2_Info_GetJobAttr("PMI_dead_processes", value, sizeof value, &found));
    REQUIRE(found && !value[0]);
    CHECK(PMI2_Info_GetJobAttr("no-such-attribute", value, sizeof value, &found));
    REQUIRE(!found);

    /* The last comes late, and so does what it put: twice, for no fence is the other. */
    for (int round = 0; round < 2; round++) {
        if (rank == size - 1)
            usleep(200 * 1000);
        for (size_t i = 0; i < VALUES; i++) {
            snprintf(key, sizeof key, "k%d-%d-%zu", rank, round, i);
            CHECK(PMI2_KVS_Put(key, values[i]));
        }
        CHECK(PMI2_KVS_Fence());
        for (int other = 0; other < size; other++) {
            for (size_t i = 0; i < VALUES; i++) {
                snprintf(key, sizeof key, "k%d-%d-%zu", other, round, i);
                CHECK(PMI2_KVS_Get(job, other, key, value, sizeof value, &length));
                REQUIRE(strcmp(value, values[i]) == 0 && length == (int)strlen(values[i]));
            }
        }
    }
    REQUIRE(PMI2_KVS_Get(job, PMI2_ID_NULL, "nobody-put-this", value, sizeof value, &length) != PMI2_SUCCESS);

    /* Those of a node wait for its first process. */
    if (atoi(getenv("LOCAL_RANK")) == 0) {
        usleep(100 * 1000);
        CHECK(PMI2_Info_PutNodeAttr("numbers", "3, 1,4"));
    }
    CHECK(PMI2_Info_GetNodeAttr("numbers", value, sizeof value, &found, 1));
    REQUIRE(found && strcmp(value, "3, 1,4") == 0);
    CHECK(PMI2_Info_GetNodeAttr("not-there", value, sizeof value, &found, 0));
    REQUIRE(!found);

    /* A name that one publishes is found by all until it is taken back, under the word in which this client looks. */
    snprintf(key, sizeof key, "service%d", rank);
    snprintf(value, sizeof value, "port#%d$x", rank);
    CHECK(PMI2_Nameserv_publish(key, NULL, value));
    REQUIRE(PMI2_Nameserv_publish(key, NULL, value) != PMI2_SUCCESS);
    CHECK(PMI2_KVS_Fence());
    for (int other = 0; other < size; other++) {
        char port[32];
        snprintf(key, sizeof key, "service%d", other);
        snprintf(port, sizeof port, "port#%d$x", other);
        CHECK(PMI2_Nameserv_lookup(key, NULL, value, sizeof value));
        REQUIRE(strcmp(value, port) == 0);
    }
    CHECK(PMI2_KVS_Fence());
    snprintf(key, sizeof key, "service%d", rank);
    CHECK(PMI2_Nameserv_unpublish(key, NULL));
    REQUIRE(PMI2_Nameserv_lookup(key, NULL, value, sizeof value) != PMI2_SUCCESS);
    REQUIRE(PMI2_Nameserv_unpublish(key, NULL) != PMI2_SUCCESS);

    /* What Slurm alone has is refused, and nobody waits for it. */
    REQUIRE(PMIX_Ring("value", &number, &found, left, right, sizeof left) != PMI2_SUCCESS);

    CHECK(PMI2_KVS_Fence());
    CHECK(PMI2_Finalize());
    REQUIRE(dladdr((void *)PMI2_Init, &library));
    printf("rank %d of %d is content with %s\n", rank, size, library.dli_fname);
    return 0;
}
