/* Ranks tell each other by PMIx who they are, with and without collecting data, publish, look up, and abort if asked. */
#include <pmix.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(call)                                                                                \
    do {                                                                                           \
        pmix_status_t status_ = (call);                                                             \
        if (status_ != PMIX_SUCCESS) {                                                               \
            fprintf(stderr, "%u: %s: %s\n", me.rank, #call, PMIx_Error_string(status_));             \
            exit(3);                                                                               \
        }                                                                                          \
    } while (0)

static pmix_proc_t me, all, other;

static void put(const char *key, uint32_t number) {
    pmix_value_t value = {.type = PMIX_UINT32, .data.uint32 = number};
    CHECK(PMIx_Put(PMIX_GLOBAL, key, &value));
    CHECK(PMIx_Commit());
}

static uint32_t get(uint32_t rank, const char *key) {
    pmix_value_t *value = NULL;
    other.rank = rank;
    CHECK(PMIx_Get(&other, key, NULL, 0, &value));
    return value->data.uint32;
}

int main(int count, char **words) {
    CHECK(PMIx_Init(&me, NULL, 0));
    all = other = me;
    all.rank = PMIX_RANK_WILDCARD;
    uint32_t size = get(PMIX_RANK_WILDCARD, PMIX_JOB_SIZE), sum = 0;
    bool yes = true;
    pmix_info_t collect;
    PMIX_INFO_LOAD(&collect, PMIX_COLLECT_DATA, &yes, PMIX_BOOL);
    put("first", 100 + me.rank);
    CHECK(PMIx_Fence(&all, 1, &collect, 1));
    for (uint32_t rank = 0; rank < size; rank++)
        sum += get(rank, "first");
    if (count > 1 && strcmp(words[1], "abort") == 0 && me.rank == size - 1)
        PMIx_Abort(42, "it was asked to", NULL, 0);
    put("second", 1000 + me.rank);
    CHECK(PMIx_Fence(&all, 1, NULL, 0));
    sum += get((me.rank + 1) % size, "second");
    char name[32];
    pmix_info_t published;
    pmix_pdata_t found;
    snprintf(name, sizeof name, "name-%u", me.rank);
    PMIX_INFO_LOAD(&published, name, "port", PMIX_STRING);
    CHECK(PMIx_Publish(&published, 1));
    CHECK(PMIx_Fence(&all, 1, NULL, 0));
    PMIX_PDATA_CONSTRUCT(&found);
    snprintf(found.key, sizeof found.key, "name-%u", (me.rank + 1) % size);
    CHECK(PMIx_Lookup(&found, 1, NULL, 0));
    printf("rank %u of %u: sum %u, port of %u %s\n", me.rank, size, sum, found.proc.rank,
           found.value.data.string);
    CHECK(PMIx_Finalize(NULL, 0));
    return 0;
}
