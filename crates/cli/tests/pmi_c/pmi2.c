/* Every process puts values of all kinds, from several threads at once, and gets those of all others. */
#include <pmi2.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static const char *values[] = {"plain", "with space ", "a b=c;d%e", "", "=", ";;", "%41 100%", "\\ \t\n \xc3\xa4"};
#define VALUES (sizeof values / sizeof *values)
#define THREADS 4

static int size, rank;
static char job[300];

static void *put(void *argument)
{
    long thread = (long)argument;
    for (size_t i = 0; i < VALUES; i++) {
        char key[PMI2_MAX_KEYLEN];
        snprintf(key, sizeof key, "k%d-%ld-%zu", rank, thread, i);
        CHECK(PMI2_KVS_Put(key, values[i]));
    }
    return NULL;
}

static void *get(void *argument)
{
    long thread = (long)argument;
    for (int other = 0; other < size; other++) {
        for (size_t i = 0; i < VALUES; i++) {
            char key[PMI2_MAX_KEYLEN], value[PMI2_MAX_VALLEN + 1];
            int length;
            snprintf(key, sizeof key, "k%d-%ld-%zu", other, thread, i);
            CHECK(PMI2_KVS_Get(job, other, key, value, sizeof value, &length));
            REQUIRE(strcmp(value, values[i]) == 0 && length == (int)strlen(values[i]));
        }
    }
    return NULL;
}

static void on_threads(void *(*work)(void *))
{
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++)
        REQUIRE(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    for (long i = 0; i < THREADS; i++)
        REQUIRE(pthread_join(threads[i], NULL) == 0);
}

int main(void)
{
    int spawned, appnum, found, length, node, ring_rank, ring_size;
    char value[PMI2_MAX_VALLEN + 1], left[32], right[32], expected[32], service[64];

    REQUIRE(!PMI2_Initialized());
    REQUIRE(PMI2_KVS_Fence() == PMI2_ERR_INIT);
    CHECK(PMI2_Init(&spawned, &size, &rank, &appnum));
    REQUIRE(PMI2_Initialized() && !spawned);
    CHECK(PMI2_Job_GetId(job, sizeof job));

    on_threads(put);
    CHECK(PMI2_KVS_Fence());
    on_threads(get);
    REQUIRE(PMI2_KVS_Get(job, PMI2_ID_NULL, "nobody-put-this", value, sizeof value, &length) != PMI2_SUCCESS);
    CHECK(PMI2_KVS_Get(NULL, PMI2_ID_NULL, "k0-0-0", value, 3, &length));
    REQUIRE(length == -5 && strcmp(value, "pl") == 0);

    CHECK(PMI2_Info_GetJobAttr("PMI_process_mapping", value, sizeof value, &found));
    REQUIRE(found && strncmp(value, "(vector", 7) == 0);
    CHECK(PMI2_Info_GetJobAttr("no-such-attribute", value, sizeof value, &found));
    /* Slurm's server, which gives its steps a job id, finds everything. */
    REQUIRE(!found || getenv("PMI_JOBID"));
    CHECK(PMI2_Info_GetSize(&node));
    REQUIRE(node == size);

    CHECK(PMI2_Info_GetNodeAttr("not-there-yet", value, sizeof value, &found, 0));
    if (rank == size - 1)
        CHECK(PMI2_Info_PutNodeAttr("numbers", "3, 1,4"));
    CHECK(PMI2_Info_GetNodeAttr("numbers", value, sizeof value, &found, 1));
    REQUIRE(found && strcmp(value, "3, 1,4") == 0);
    int numbers[2], count;
    CHECK(PMI2_Info_GetNodeAttrIntArray("numbers", numbers, 2, &count, &found));
    REQUIRE(found && count == 2 && numbers[0] == 3 && numbers[1] == 1);

    snprintf(service, sizeof service, "service%d", rank);
    CHECK(PMI2_Nameserv_publish(service, NULL, "port#1$x"));
    CHECK(PMI2_Nameserv_lookup(service, NULL, value, sizeof value));
    REQUIRE(strcmp(value, "port#1$x") == 0);
    CHECK(PMI2_Nameserv_unpublish(service, NULL));
    REQUIRE(PMI2_Nameserv_lookup(service, NULL, value, sizeof value) != PMI2_SUCCESS);

    snprintf(value, sizeof value, "value of %d", rank);
    CHECK(PMIX_Ring(value, &ring_rank, &ring_size, left, right, sizeof left));
    REQUIRE(ring_rank == rank && ring_size == size);
    snprintf(expected, sizeof expected, "value of %d", (rank + size - 1) % size);
    REQUIRE(strcmp(left, expected) == 0);
    snprintf(expected, sizeof expected, "value of %d", (rank + 1) % size);
    REQUIRE(strcmp(right, expected) == 0);

    CHECK(PMI2_KVS_Fence());
    CHECK(PMI2_Finalize());
    printf("rank %d of %d is content\n", rank, size);
    return 0;
}
