/* Ranks ask by PMIx for the process groups of the job, for sizes, and for the processes of their host and of all. */
#include <pmix.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static pmix_proc_t me;

static pmix_status_t ask(const char *key, bool names_group, pmix_info_t **results, size_t *count) {
    pmix_query_t query;
    char *keys[] = {(char *)key, NULL};
    PMIX_QUERY_CONSTRUCT(&query);
    query.keys = keys;
    if (names_group) {
        PMIX_QUERY_QUALIFIERS_CREATE(&query, 1);
        PMIX_INFO_LOAD(&query.qualifiers[0], PMIX_NSPACE, me.nspace, PMIX_STRING);
    }
    *results = NULL;
    *count = 0;
    return PMIx_Query_info(&query, 1, results, count);
}

int main(void) {
    pmix_info_t *found;
    size_t count;
    if (PMIx_Init(&me, NULL, 0) != PMIX_SUCCESS)
        return 3;
    PMIx_Fence(NULL, 0, NULL, 0); /* All run. */
    if (ask(PMIX_QUERY_NAMESPACES, false, &found, &count) == PMIX_SUCCESS && count == 1)
        printf("groups: %s\n", strcmp(found->value.data.string, me.nspace) == 0 ? "own" : "others");
    if (ask(PMIX_JOB_SIZE, false, &found, &count) == PMIX_SUCCESS && count == 1)
        printf("size: %u\n", found->value.data.uint32);
    if (ask(PMIX_QUERY_LOCAL_PROC_TABLE, true, &found, &count) == PMIX_SUCCESS && count == 1) {
        pmix_data_array_t *table = found->value.data.darray;
        pmix_proc_info_t *rows = table->array;
        for (size_t index = 0; index < table->size; index++)
            if (rows[index].proc.rank == me.rank)
                printf("row: %s %s\n", rows[index].pid == getpid() ? "right" : "wrong",
                       rows[index].state == PMIX_PROC_STATE_CONNECTED ? "connected" : "silent");
        printf("rows: %zu\n", table->size);
    }
    if (ask(PMIX_QUERY_PROC_TABLE, true, &found, &count) == PMIX_SUCCESS && count == 1) {
        pmix_data_array_t *table = found->value.data.darray;
        pmix_proc_info_t *rows = table->array;
        for (size_t index = 0; index < table->size; index++)
            printf("process %u: %s %s\n", rows[index].proc.rank, rows[index].hostname,
                   kill(rows[index].pid, 0) == 0 ? "runs" : "is gone");
    }
    printf("unknown: %s\n", PMIx_Error_string(ask(PMIX_QUERY_QUEUE_LIST, true, &found, &count)));
    PMIx_Fence(NULL, 0, NULL, 0);
    return PMIx_Finalize(NULL, 0) != PMIX_SUCCESS;
}
