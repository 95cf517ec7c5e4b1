/* Ranks log texts by PMIx to their standard streams, to a channel that there is not, and to both. */
#include <pmix.h>
#include <stdio.h>

static void say(const char *what, pmix_status_t status) {
    printf("%s: %s\n", what, PMIx_Error_string(status));
}

int main(void) {
    pmix_proc_t me;
    pmix_info_t texts[2], once;
    if (PMIx_Init(&me, NULL, 0) != PMIX_SUCCESS)
        return 3;
    PMIX_INFO_LOAD(&texts[0], PMIX_LOG_STDOUT, "two\nlines\n", PMIX_STRING);
    PMIX_INFO_LOAD(&texts[1], PMIX_LOG_STDERR, "no end", PMIX_STRING);
    say("streams", PMIx_Log(texts, 2, NULL, 0));
    PMIX_INFO_LOAD(&texts[0], PMIX_LOG_SYSLOG, "nowhere", PMIX_STRING);
    say("syslog", PMIx_Log(texts, 1, NULL, 0));
    say("both", PMIx_Log(texts, 2, NULL, 0));
    PMIX_INFO_LOAD(&once, PMIX_LOG_ONCE, NULL, PMIX_BOOL);
    say("once", PMIx_Log(texts, 2, &once, 1));
    return PMIx_Finalize(NULL, 0) != PMIX_SUCCESS;
}
