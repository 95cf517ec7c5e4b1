/* Ranks construct groups by PMIx: all of them, those with even numbers, and all once more. Each says which numbers its
 * groups got. */
#include <pmix.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(call)                                                                                \
    do {                                                                                           \
        pmix_status_t status_ = (call);                                                             \
        if (status_ != PMIX_SUCCESS) {                                                               \
            fprintf(stderr, "%u: %s: %s\n", me.rank, #call, PMIx_Error_string(status_));             \
            exit(3);                                                                               \
        }                                                                                          \
    } while (0)

static pmix_proc_t me;

/* Constructs and destructs a group of the ranks 0, step, 2 step and so on. Returns its number. */
static size_t group(const char *name, uint32_t size, uint32_t step) {
    pmix_proc_t *members = calloc(size, sizeof *members);
    pmix_info_t wish, *results = NULL;
    size_t count = 0, results_count = 0, number = 0;
    for (uint32_t rank = 0; rank < size; rank += step, count++)
        PMIX_LOAD_PROCID(&members[count], me.nspace, rank);
    PMIX_INFO_LOAD(&wish, PMIX_GROUP_ASSIGN_CONTEXT_ID, NULL, PMIX_BOOL);
    CHECK(PMIx_Group_construct(name, members, count, &wish, 1, &results, &results_count));
    for (size_t index = 0; index < results_count; index++)
        if (PMIX_CHECK_KEY(&results[index], PMIX_GROUP_CONTEXT_ID))
            number = results[index].value.data.size;
    CHECK(PMIx_Group_destruct(name, NULL, 0));
    free(members);
    return number;
}

int main(void) {
    CHECK(PMIx_Init(&me, NULL, 0));
    pmix_proc_t all = me;
    pmix_value_t *value = NULL;
    all.rank = PMIX_RANK_WILDCARD;
    CHECK(PMIx_Get(&all, PMIX_JOB_SIZE, NULL, 0, &value));
    uint32_t size = value->data.uint32;
    printf("first %zu\n", group("all", size, 1));
    if (me.rank % 2 == 0)
        printf("even %zu\n", group("even", size, 2));
    printf("second %zu\n", group("all", size, 1));
    CHECK(PMIx_Finalize(NULL, 0));
    return 0;
}
