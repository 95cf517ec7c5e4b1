/* A process spawns two of the same program and connects with them twice. It finds what one of them has published, until
   that is unpublished. */
#include <pmix.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(call)                                                                                \
    do {                                                                                           \
        pmix_status_t status_ = (call);                                                             \
        if (status_ != PMIX_SUCCESS) {                                                               \
            fprintf(stderr, "%s.%u: %s: %s\n", me.nspace, me.rank, #call, PMIx_Error_string(status_)); \
            exit(3);                                                                               \
        }                                                                                          \
    } while (0)

static pmix_proc_t me, all[2];

static pmix_status_t look_up(void) {
    pmix_pdata_t found;
    PMIX_PDATA_CONSTRUCT(&found);
    strcpy(found.key, "ocean");
    pmix_status_t status = PMIx_Lookup(&found, 1, NULL, 0);
    if (status == PMIX_SUCCESS && strcmp(found.value.data.string, "port") != 0)
        return PMIX_ERROR;
    return status;
}

/* All of both groups have come before one goes on. */
static void meet(void) {
    CHECK(PMIx_Connect(all, 2, NULL, 0));
    CHECK(PMIx_Disconnect(all, 2, NULL, 0));
}

static void spawn(char *program) {
    pmix_app_t app;
    PMIX_APP_CONSTRUCT(&app);
    app.cmd = program;
    pmix_status_t appended;
    PMIX_ARGV_APPEND(appended, app.argv, program);
    CHECK(appended);
    PMIX_ARGV_APPEND(appended, app.argv, "spawned");
    CHECK(appended);
    app.maxprocs = 2;
    CHECK(PMIx_Spawn(NULL, 0, &app, 1, all[1].nspace));
}

int main(int count, char **words) {
    CHECK(PMIx_Init(&me, NULL, 0));
    pmix_value_t *parent = NULL;
    bool is_spawned = count > 1;
    pmix_proc_t own = me;
    own.rank = PMIX_RANK_WILDCARD;
    if (is_spawned) {
        /* The parent is the same for the group as for a process of it. */
        pmix_value_t *parent_of_me = NULL;
        CHECK(PMIx_Get(&own, PMIX_PARENT_ID, NULL, 0, &parent));
        CHECK(PMIx_Get(&me, PMIX_PARENT_ID, NULL, 0, &parent_of_me));
        if (!PMIX_CHECK_PROCID(parent->data.proc, parent_of_me->data.proc) || parent->data.proc->rank != 0)
            exit(4);
    }
    all[0].rank = all[1].rank = PMIX_RANK_WILDCARD;
    strcpy(all[0].nspace, is_spawned ? parent->data.proc->nspace : me.nspace);
    strcpy(all[1].nspace, me.nspace);
    if (!is_spawned)
        spawn(words[0]);
    bool publishes = is_spawned && me.rank == 0;
    if (publishes) {
        pmix_info_t port;
        PMIX_INFO_LOAD(&port, "ocean", "port", PMIX_STRING);
        CHECK(PMIx_Publish(&port, 1));
    }
    meet();
    if (!is_spawned)
        printf("published: %s\n", PMIx_Error_string(look_up()));
    meet();
    if (publishes) {
        char *names[] = {"ocean", NULL};
        CHECK(PMIx_Unpublish(names, NULL, 0));
    }
    meet();
    if (!is_spawned)
        printf("unpublished: %s\n", PMIx_Error_string(look_up()));
    meet();
    CHECK(PMIx_Finalize(NULL, 0));
    return 0;
}
