/* PMI-1: how the processes of a parallel program find each other.
 *
 * The names and types are those that Slurm's pmi.h and MPICH's have, so that programs written for either compile and
 * link with libpmi.so. Every function returns PMI_SUCCESS or one of the errors below. Text ends with a NUL; a length
 * is that of the caller's buffer, the NUL included. All functions may be called by several threads at once.
 */
#ifndef ROPEWALK_PMI_H
#define ROPEWALK_PMI_H

#ifdef __cplusplus
extern "C" {
#endif

#define PMI_VERSION 1
#define PMI_SUBVERSION 1

#define PMI_SUCCESS 0
#define PMI_FAIL -1
#define PMI_ERR_INIT 1
#define PMI_ERR_NOMEM 2
#define PMI_ERR_INVALID_ARG 3
#define PMI_ERR_INVALID_KEY 4
#define PMI_ERR_INVALID_KEY_LENGTH 5
#define PMI_ERR_INVALID_VAL 6
#define PMI_ERR_INVALID_VAL_LENGTH 7
#define PMI_ERR_INVALID_LENGTH 8
#define PMI_ERR_INVALID_NUM_ARGS 9
#define PMI_ERR_INVALID_ARGS 10
#define PMI_ERR_INVALID_NUM_PARSED 11
#define PMI_ERR_INVALID_KEYVALP 12
#define PMI_ERR_INVALID_SIZE 13
#define PMI_ERR_INVALID_KVS 14

typedef int PMI_BOOL;
#define PMI_TRUE 1
#define PMI_FALSE 0

typedef struct PMI_keyval_t {
    const char *key;
    char *val;
} PMI_keyval_t;

/* Connects to the process manager. Without one the process is alone: rank 0 of 1. */
int PMI_Init(int *spawned);
int PMI_Initialized(int *initialized);
/* A process that ends without it counts as failed. */
int PMI_Finalize(void);

int PMI_Get_size(int *size);
int PMI_Get_rank(int *rank);
/* -1 if nobody knows. */
int PMI_Get_universe_size(int *size);
/* The index of the process's program among those of the job. */
int PMI_Get_appnum(int *appnum);

int PMI_Publish_name(const char service_name[], const char port[]);
int PMI_Unpublish_name(const char service_name[]);
/* The buffer must have room for the longest port that is published. */
int PMI_Lookup_name(const char service_name[], char port[]);

/* The name of the job, and of its key-value space. */
int PMI_Get_id(char id_str[], int length);
int PMI_Get_kvs_domain_id(char id_str[], int length);
int PMI_Get_id_length_max(int *length);

/* Waits for all processes of the job; fails if one of them will never come. */
int PMI_Barrier(void);

/* The processes on this one's node. */
int PMI_Get_clique_size(int *size);
int PMI_Get_clique_ranks(int ranks[], int length);

/* Ends the job and this process. Does not return. */
int PMI_Abort(int exit_code, const char error_msg[]);

int PMI_KVS_Get_my_name(char kvsname[], int length);
int PMI_KVS_Get_name_length_max(int *length);
int PMI_KVS_Get_key_length_max(int *length);
int PMI_KVS_Get_value_length_max(int *length);
/* Values may hold anything. What is put can be got by all after the next PMI_Barrier. */
int PMI_KVS_Put(const char kvsname[], const char key[], const char value[]);
int PMI_KVS_Commit(const char kvsname[]);
/* PMI_FAIL if nothing was put under the key. */
int PMI_KVS_Get(const char kvsname[], const char key[], char value[], int length);

/* Not served, and always PMI_FAIL: the wire protocol has one key-value space for a job, and does not list keys. */
int PMI_KVS_Create(char kvsname[], int length);
int PMI_KVS_Destroy(const char kvsname[]);
int PMI_KVS_Iter_first(const char kvsname[], char key[], int key_len, char val[], int val_len);
int PMI_KVS_Iter_next(const char kvsname[], char key[], int key_len, char val[], int val_len);

/* Starts processes as a new job. Each list of arguments ends with NULL and lacks the program's name. */
int PMI_Spawn_multiple(int count, const char *cmds[], const char **argvs[], const int maxprocs[],
                       const int info_keyval_sizesp[], const PMI_keyval_t *info_keyval_vectors[],
                       int preput_keyval_size, const PMI_keyval_t preput_keyval_vector[], int errors[]);

/* There are no options of the process manager's own: these find none. */
int PMI_Parse_option(int num_args, char *args[], int *num_parsed, PMI_keyval_t **keyvalp, int *size);
int PMI_Args_to_keyval(int *argcp, char *((*argvp)[]), PMI_keyval_t **keyvalp, int *size);
int PMI_Free_keyvals(PMI_keyval_t keyvalp[], int size);
int PMI_Get_options(char *str, int *length);

#ifdef __cplusplus
}
#endif

#endif
