/* Preloaded into programs of MPICH over UCX: a rank that asked for progress 200 times in vain waits for 50 microseconds.
 * Ranks spin otherwise, and with fewer processors than ranks those that spin keep those that have work from running. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <time.h>

unsigned ucp_worker_progress(void *worker)
{
    static unsigned (*_Atomic next)(void *);
    static _Atomic unsigned in_vain;
    if (!next)
        next = (unsigned (*)(void *))dlsym(RTLD_NEXT, "ucp_worker_progress");
    unsigned found = next(worker);
    if (!found && ++in_vain % 200 == 0)
        nanosleep(&(struct timespec){.tv_nsec = 50 * 1000}, 0);
    return found;
}
