/* Preloaded into MPI programs that have to share processors: where they ask without waiting and find nothing, they
 * wait for at most 100 microseconds. MPI ranks spin, and with fewer processors than ranks those that spin keep those
 * that have work to do from running. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <time.h>

static const struct timespec SHORT = {.tv_sec = 0, .tv_nsec = 100 * 1000};

int epoll_wait(int epoll, struct epoll_event *events, int count, int timeout)
{
    static int (*_Atomic next)(int, struct epoll_event *, int, int);
    if (!next)
        next = (int (*)(int, struct epoll_event *, int, int))dlsym(RTLD_NEXT, "epoll_wait");
    int found = next(epoll, events, count, timeout);
    if (found != 0 || timeout != 0)
        return found;
    struct pollfd one = {.fd = epoll, .events = POLLIN};
    return ppoll(&one, 1, &SHORT, 0) > 0 ? next(epoll, events, count, 0) : 0;
}

int poll(struct pollfd *polled, nfds_t count, int timeout)
{
    static int (*_Atomic next)(struct pollfd *, nfds_t, int);
    if (!next)
        next = (int (*)(struct pollfd *, nfds_t, int))dlsym(RTLD_NEXT, "poll");
    int found = next(polled, count, timeout);
    return found != 0 || timeout != 0 ? found : ppoll(polled, count, &SHORT, 0);
}
