/* Every process puts values of all kinds, and gets those of all others. */
#include <pmi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(expression)                                                            \
    do {                                                                             \
        int status = (expression);                                                   \
        if (status != PMI_SUCCESS) {                                                 \
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

static const char *values[] = {"plain", "with space ", "a b=c;d%e", "", "=", "%41 100%", "\\ \t\n \xc3\xa4"};
#define VALUES (sizeof values / sizeof *values)

int main(void)
{
    int spawned, initialized, size, rank, length, appnum, universe, clique;
    char name[300], key[64], value[1100];

    CHECK(PMI_Initialized(&initialized));
    REQUIRE(!initialized);
    REQUIRE(PMI_Get_size(&size) == PMI_ERR_INIT);
    CHECK(PMI_Init(&spawned));
    CHECK(PMI_Initialized(&initialized));
    REQUIRE(initialized && !spawned);
    CHECK(PMI_Get_size(&size));
    CHECK(PMI_Get_rank(&rank));
    CHECK(PMI_Get_appnum(&appnum));
    CHECK(PMI_Get_universe_size(&universe));
    CHECK(PMI_KVS_Get_name_length_max(&length));
    REQUIRE(length <= (int)sizeof name);
    CHECK(PMI_KVS_Get_my_name(name, length));
    REQUIRE(PMI_KVS_Get_my_name(name, 1) == PMI_ERR_INVALID_LENGTH);
    CHECK(PMI_KVS_Get_value_length_max(&length));
    REQUIRE(length >= 512 && length <= (int)sizeof value);

    for (size_t i = 0; i < VALUES; i++) {
        snprintf(key, sizeof key, "k%d-%zu", rank, i);
        CHECK(PMI_KVS_Put(name, key, values[i]));
    }
    memset(value, 'x', length - 1);
    value[length - 1] = 0;
    snprintf(key, sizeof key, "long%d", rank);
    CHECK(PMI_KVS_Put(name, key, value));
    CHECK(PMI_KVS_Commit(name));
    CHECK(PMI_Barrier());
    for (int other = 0; other < size; other++) {
        for (size_t i = 0; i < VALUES; i++) {
            snprintf(key, sizeof key, "k%d-%zu", other, i);
            CHECK(PMI_KVS_Get(name, key, value, sizeof value));
            REQUIRE(strcmp(value, values[i]) == 0);
        }
        snprintf(key, sizeof key, "long%d", other);
        CHECK(PMI_KVS_Get(name, key, value, length));
        REQUIRE(strlen(value) == (size_t)length - 1);
        REQUIRE(PMI_KVS_Get(name, key, value, length - 1) == PMI_ERR_INVALID_LENGTH);
    }
    REQUIRE(PMI_KVS_Get(name, "nobody-put-this", value, sizeof value) != PMI_SUCCESS);
    REQUIRE(PMI_KVS_Put(name, NULL, "v") == PMI_ERR_INVALID_ARG);
    REQUIRE(PMI_KVS_Put(name, "a key", "v") != PMI_SUCCESS);

    CHECK(PMI_Get_clique_size(&clique));
    REQUIRE(clique == size);
    int *ranks = calloc(clique, sizeof *ranks);
    CHECK(PMI_Get_clique_ranks(ranks, clique));
    REQUIRE(ranks[rank] == rank);
    REQUIRE(PMI_Get_clique_ranks(ranks, clique - 1) == PMI_ERR_INVALID_LENGTH || size == 1);

    snprintf(key, sizeof key, "my service %d", rank);
    CHECK(PMI_Publish_name(key, "tag#0$port#1 2$"));
    /* Slurm's server, which gives its steps a job id, lets a second one in its place. */
    REQUIRE(getenv("PMI_JOBID") || PMI_Publish_name(key, "another") != PMI_SUCCESS);
    CHECK(PMI_Lookup_name(key, value));
    REQUIRE(strcmp(value, "tag#0$port#1 2$") == 0);
    CHECK(PMI_Unpublish_name(key));
    REQUIRE(PMI_Lookup_name(key, value) != PMI_SUCCESS);

    CHECK(PMI_Barrier());
    CHECK(PMI_Finalize());
    REQUIRE(PMI_Barrier() == PMI_ERR_INIT);
    printf("rank %d of %d is content\n", rank, size);
    return 0;
}
