/* PMI-2: how the processes of a parallel program find each other.
 *
 * The names and types are those that Slurm's pmi2.h and MPICH's have, so that programs written for either compile and
 * link with libpmi2.so. Every function returns PMI2_SUCCESS or one of the errors below. Text ends with a NUL; sizes
 * are those of the caller's buffers, the NUL included. All functions may be called by several threads at once, and a
 * request that waits does not keep the others waiting where the process manager can tell them apart.
 */
#ifndef ROPEWALK_PMI2_H
#define ROPEWALK_PMI2_H

#ifdef __cplusplus
extern "C" {
#endif

#define PMI2_MAX_KEYLEN 64
#define PMI2_MAX_VALLEN 1024
#define PMI2_MAX_ATTRVALUE 1024
#define PMI2_ID_NULL -1

#define PMI2_SUCCESS 0
#define PMI2_FAIL -1
#define PMI2_ERR_INIT 1
#define PMI2_ERR_NOMEM 2
#define PMI2_ERR_INVALID_ARG 3
#define PMI2_ERR_INVALID_KEY 4
#define PMI2_ERR_INVALID_KEY_LENGTH 5
#define PMI2_ERR_INVALID_VAL 6
#define PMI2_ERR_INVALID_VAL_LENGTH 7
#define PMI2_ERR_INVALID_LENGTH 8
#define PMI2_ERR_INVALID_NUM_ARGS 9
#define PMI2_ERR_INVALID_ARGS 10
#define PMI2_ERR_INVALID_NUM_PARSED 11
#define PMI2_ERR_INVALID_KEYVALP 12
#define PMI2_ERR_INVALID_SIZE 13
#define PMI2_ERR_OTHER 14

typedef struct MPID_Info {
    int handle;
    int pobj_mutex;
    int ref_count;
    struct MPID_Info *next;
    char *key;
    char *value;
} MPID_Info;
#define PMI2U_Info MPID_Info

typedef struct PMI2_Connect_comm {
    int (*read)(void *buf, int maxlen, void *ctx);
    int (*write)(const void *buf, int len, void *ctx);
    void *ctx;
    int isMaster;
} PMI2_Connect_comm_t;

/* Connects to the process manager. Without one the process is alone: rank 0 of 1. */
int PMI2_Init(int *spawned, int *size, int *rank, int *appnum);
/* A process that ends without it counts as failed. */
int PMI2_Finalize(void);
/* 1 or 0. */
int PMI2_Initialized(void);
/* Ends the job and this process. Does not return. */
int PMI2_Abort(int flag, const char msg[]);

/* Starts processes as a new job. The lists of arguments lack the programs' names. */
int PMI2_Job_Spawn(int count, const char *cmds[], int argcs[], const char **argvs[], const int maxprocs[],
                   const int info_keyval_sizes[], const struct MPID_Info *info_keyval_vectors[],
                   int preput_keyval_size, const struct MPID_Info *preput_keyval_vector[], char jobId[],
                   int jobIdSize, int errors[]);
int PMI2_Job_GetId(char jobid[], int jobid_size);
int PMI2_Job_GetRank(int *rank);
/* From now on PMI2_KVS_Get with that job reads what the other job put. */
int PMI2_Job_Connect(const char jobid[], PMI2_Connect_comm_t *conn);
int PMI2_Job_Disconnect(const char jobid[]);

/* Values may hold anything. What is put can be got by all after the next PMI2_KVS_Fence. */
int PMI2_KVS_Put(const char key[], const char value[]);
/* `vallen` is the value's length, or less than 0 and its absolute value the length if there was too little room. */
int PMI2_KVS_Get(const char *jobid, int src_pmi_id, const char key[], char value[], int maxvalue, int *vallen);
/* Waits for all processes of the job; fails if one of them will never come. */
int PMI2_KVS_Fence(void);

/* How many processes are on this one's node. */
int PMI2_Info_GetSize(int *size);
/* With `waitfor`, waits until a process of the node has put it. */
int PMI2_Info_GetNodeAttr(const char name[], char value[], int valuelen, int *found, int waitfor);
int PMI2_Info_GetNodeAttrIntArray(const char name[], int array[], int arraylen, int *outlen, int *found);
int PMI2_Info_PutNodeAttr(const char name[], const char value[]);
int PMI2_Info_GetJobAttr(const char name[], char value[], int valuelen, int *found);
int PMI2_Info_GetJobAttrIntArray(const char name[], int array[], int arraylen, int *outlen, int *found);

int PMI2_Nameserv_publish(const char service_name[], const struct MPID_Info *info_ptr, const char port[]);
int PMI2_Nameserv_lookup(const char service_name[], const struct MPID_Info *info_ptr, char port[], int portLen);
int PMI2_Nameserv_unpublish(const char service_name[], const struct MPID_Info *info_ptr);

/* Gives a value to both neighbours in the order of ranks, and takes theirs. All processes of the job call it. */
int PMIX_Ring(const char value[], int *rank, int *ranks, char left[], char right[], int maxvalue);

#ifdef __cplusplus
}
#endif

#endif
