/* Loaded before MPI: says at the end how often the process wrote to its process manager. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int requests;

ssize_t write(int descriptor, const void *bytes, size_t length)
{
    static ssize_t (*next)(int, const void *, size_t);
    const char *pmi = getenv("PMI_FD");
    if (!next)
        next = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    if (pmi && descriptor == atoi(pmi))
        requests++;
    return next(descriptor, bytes, length);
}

__attribute__((destructor)) static void tell(void)
{
    if (requests)
        fprintf(stderr, "requests %d\n", requests);
}
