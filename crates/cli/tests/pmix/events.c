/* The last rank is killed; the others hear of it, and go on. */
#include <pmix.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define CHECK(call)                                                                                \
    do {                                                                                           \
        pmix_status_t status_ = (call);                                                             \
        if (status_ != PMIX_SUCCESS) {                                                               \
            fprintf(stderr, "%u: %s: %s\n", me.rank, #call, PMIx_Error_string(status_));             \
            return 3;                                                                              \
        }                                                                                          \
    } while (0)

static pmix_proc_t me;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int lost = -1;

static void hear(size_t handler, pmix_status_t event, const pmix_proc_t *source, pmix_info_t infos[], size_t count,
                 pmix_info_t results[], size_t result_count, pmix_event_notification_cbfunc_fn_t done, void *object) {
    (void)handler, (void)source, (void)results, (void)result_count;
    pthread_mutex_lock(&mutex);
    for (size_t index = 0; event == PMIX_ERR_PROC_ABORTED && index < count; index++)
        if (PMIX_CHECK_KEY(&infos[index], PMIX_EVENT_AFFECTED_PROC))
            lost = (int)infos[index].value.data.proc->rank;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&mutex);
    if (done)
        done(PMIX_EVENT_ACTION_COMPLETE, NULL, 0, NULL, NULL, object);
}

int main(void) {
    CHECK(PMIx_Init(&me, NULL, 0));
    pmix_proc_t all = me;
    pmix_value_t *size = NULL;
    all.rank = PMIX_RANK_WILDCARD;
    CHECK(PMIx_Get(&all, PMIX_JOB_SIZE, NULL, 0, &size));
    pmix_status_t code = PMIX_ERR_PROC_ABORTED;
    /* Without a callback it returns the number of the handler. */
    if (PMIx_Register_event_handler(&code, 1, NULL, 0, hear, NULL, NULL) < 0)
        return 4;
    CHECK(PMIx_Fence(&all, 1, NULL, 0));
    if (me.rank == size->data.uint32 - 1)
        raise(SIGKILL);
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += 30;
    pthread_mutex_lock(&mutex);
    while (lost < 0 && pthread_cond_timedwait(&changed, &mutex, &end) == 0)
        ;
    pthread_mutex_unlock(&mutex);
    printf("rank %u heard of %d\n", me.rank, lost);
    return PMIx_Finalize(NULL, 0) != PMIX_SUCCESS;
}
