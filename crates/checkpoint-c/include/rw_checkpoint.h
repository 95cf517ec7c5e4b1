/*
 * When to save a long computation so that failures cost least, and a store of checkpoints that is never torn.
 *
 * A loop whose arrays are saved and restored by name:
 *
 *     rw_run *run;
 *     uint64_t step, shape[] = { 100, 100 };
 *     rw_resume("checkpoints", NULL, &run);
 *     rw_protect(run, "u", u, RW_FLOAT64, sizeof *u, 2, shape);
 *     while (rw_step(run, steps, &step) == RW_CHECKPOINT_OK && step < steps) { ...compute step number `step`... }
 *     rw_close(run, step == steps);
 *
 * The rest of this comment is for programs that write files of their own. Link with -lrw_checkpoint. All times are in seconds. Every function that returns int returns RW_CHECKPOINT_OK (0) or
 * an RW_CHECKPOINT_... code; rw_checkpoint_error() then says in one line what was wrong. Objects may be used by one
 * thread at a time. Texts are UTF-8 or, for paths, whatever the file system has.
 *
 * A program of one process:
 *
 *     rw_checkpoint_store_options where = RW_CHECKPOINT_STORE_OPTIONS;
 *     where.directory = "checkpoints";
 *     rw_checkpoint_store_open(&where, &store);
 *     rw_checkpoint_advisor_open(NULL, "checkpoints/journal", &advisor);
 *     rw_checkpoint_store_restore(store, &restored);
 *     if (restored.found) { ...read the files below restored.folder...; rw_checkpoint_restored_end(advisor); }
 *     for (each step) {
 *         ...compute...
 *         rw_checkpoint_step_end(advisor, &decision);
 *         if (!decision.save) continue;
 *         rw_checkpoint_save_begin(advisor, decision.level);
 *         rw_checkpoint_store_begin(store, step, &save);
 *         rw_checkpoint_save_level(save, decision.level);
 *         ...write files below rw_checkpoint_save_folder(save), and look at what fwrite and fclose return...
 *         if (!written) {                                            // what is committed is taken for whole
 *             rw_checkpoint_store_abandon(store, save);
 *             rw_checkpoint_save_failed(advisor, decision.level);
 *         } else if (rw_checkpoint_store_commit(store, save) == RW_CHECKPOINT_OK) {
 *             rw_checkpoint_save_end(advisor, decision.level);
 *             rw_checkpoint_store_retire(store);
 *         } else {
 *             rw_checkpoint_save_failed(advisor, decision.level);    // the run goes on; older checkpoints are intact
 *         }
 *     }
 *     rw_checkpoint_advisor_close(advisor, 1);
 *     rw_checkpoint_store_close(store);
 *
 * A parallel program has a store in every rank (with `rank` and `ranks`) and one advisor, in rank 0, whose decision it
 * gives to the others. Who saves in place (`in_place`) writes its files where it always does, and names them with
 * rw_checkpoint_save_add.
 */
#ifndef RW_CHECKPOINT_H
#define RW_CHECKPOINT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RW_CHECKPOINT_OK 0
#define RW_CHECKPOINT_FAILED (-1)      /* rw_checkpoint_error() says why */
#define RW_CHECKPOINT_BAD_ARGUMENT 1   /* a pointer or number that makes no sense */
#define RW_CHECKPOINT_NO_ROOM 2        /* the disk is full */
#define RW_CHECKPOINT_MISMATCH 3       /* the saved state has other names, elements or shapes; nothing was changed */

/* The last error of this thread, in one line; valid until its next call. Empty if there was none. */
const char *rw_checkpoint_error(void);

/* ---- State by name ---- */

typedef struct rw_run rw_run;

/* Begin with RW_RUN_OPTIONS; what is 0 or null has its default. */
typedef struct {
    size_t size;          /* sizeof this structure */
    uint32_t rank;        /* who saves, and how many save together; by default as the launcher says (PMI_RANK and PMI_SIZE, */
    uint32_t ranks;       /* or RANK and WORLD_SIZE), or one */
    const char *start;    /* if several save together: another text at each start of the job, and the same for all ranks; by
                             default that of `ropewalk run --checkpoint` */
    double patience;      /* how long ranks wait for each other when they restore; by default 60 */
    double mtbf;          /* a guess of the mean time between failures, from which learning starts */
    int mtbf_is_known;    /* not 0: `mtbf` is no guess, and nothing is learned */
    uint32_t keep;        /* how many complete saves are kept; by default two */
} rw_run_options;

#define RW_RUN_OPTIONS { sizeof(rw_run_options), 0, 0, NULL, 0, 0, 0, 0 }

/* Names of types of elements, as NumPy has them. Any other name without blanks may stand for a type of the program's. */
#define RW_INT8 "int8"
#define RW_INT16 "int16"
#define RW_INT32 "int32"
#define RW_INT64 "int64"
#define RW_UINT8 "uint8"
#define RW_UINT16 "uint16"
#define RW_UINT32 "uint32"
#define RW_UINT64 "uint64"
#define RW_FLOAT32 "float32"
#define RW_FLOAT64 "float64"

/*
 * Begins a run that is saved below `directory`, or where `ropewalk run --checkpoint` says if that has started the program.
 * `options` may be null. Nothing is read yet. All ranks of a job make the same calls; they have to see one directory.
 */
int rw_resume(const char *directory, const rw_run_options *options, rw_run **run);
/*
 * Saves and restores an array of `item` bytes an element; no axes stand for one element. The memory stays the caller's, and has
 * to exist until rw_close. To be called for each array before rw_restore or rw_step.
 */
int rw_protect(rw_run *run, const char *name, void *data, const char *element, size_t item, uint32_t axes,
               const uint64_t *shape);
/*
 * The same for an array of which each rank has some rows, along the first axis: rank 0 the first ones, rank 1 the next. It can
 * be restored on another number of ranks and with other numbers of rows: give the memory and shape of the new part. The rows
 * of all ranks have to be as many as were saved; the other axes have to be the same. All ranks have to name it so, and there
 * has to be an axis.
 *
 * On another number of ranks, arrays of rw_protect and values are restored if all ranks had saved the same;
 * RW_CHECKPOINT_MISMATCH if not. As many ranks as before get their own ones back.
 */
int rw_protect_partitioned(rw_run *run, const char *name, void *data, const char *element, size_t item, uint32_t axes,
                           const uint64_t *shape);
/*
 * Saves a copy of a value, whose type and length may change: to be called before rw_restore with a value to begin with, and
 * again whenever it changes. rw_get returns the value that was put or restored last, valid until the next call with this run.
 */
int rw_put(rw_run *run, const char *name, const char *kind, const void *data, size_t length);
int rw_get(rw_run *run, const char *name, const char **kind, const void **data, size_t *length);
/*
 * Restores all that is named from the newest save that all ranks have whole; `step` is how many steps that had done, 0 if
 * there is none. RW_CHECKPOINT_MISMATCH if the save holds something else: then neither memory nor saves are changed. rw_step
 * does it too.
 */
int rw_restore(rw_run *run, uint64_t *step);
/*
 * Ends the step before, if there was one, and begins the next of `steps`, whose number from 0 it returns; `steps` at the end,
 * when the last state is saved. In between it saves when the advisor says so: it copies the state, and a thread of the
 * library brings the copy to the disk. A save that fails does not end the run, unless it is the last.
 */
int rw_step(rw_run *run, uint64_t steps, uint64_t *step);
/* The error of a save that failed since the last call, null if none did. Valid until the next call with this run. */
const char *rw_save_error(rw_run *run);
/*
 * Waits for the save under way and ends the run: `finished` is not 0 if it is done or was stopped on purpose, 0 after a
 * failure. Returns the error of the last save if nobody has heard of it.
 */
int rw_close(rw_run *run, int finished);

/* ---- When to save ---- */

typedef struct rw_checkpoint_advisor rw_checkpoint_advisor;

/* Begin with RW_CHECKPOINT_ADVISOR_OPTIONS; what is 0 has its default. */
typedef struct {
    size_t size;          /* sizeof this structure */
    double mtbf;          /* a guess of the mean time between failures, from which learning starts; by default that of
                             `ropewalk run --mtbf` or `--mtbf-known`, or 5 years divided by the number of hosts */
    int mtbf_is_known;    /* not 0: `mtbf` is no guess but known, and nothing is learned */
    double save;          /* how long a save takes, until one was measured; if 0 the first is made at once */
    double restore;       /* how long a restore takes, until one was measured; by default 1 */
    double limit;         /* how long the job may run from now on; by default for ever */
    uint64_t steps;       /* how many steps there will be; by default nobody knows */
    double fast_save;     /* how long a save of level RW_CHECKPOINT_FAST takes; by default there is no such level, unless
                             `ropewalk run --partner` copies full saves to other hosts: fast ones are then the others */
    double fast_covers;   /* which part of the failures it survives, between 0 and 1 */
} rw_checkpoint_advisor_options;

#define RW_CHECKPOINT_ADVISOR_OPTIONS { sizeof(rw_checkpoint_advisor_options), 0, 0, 0, 0, 0, 0, 0, 0 }

#define RW_CHECKPOINT_FAST 0   /* saves that some failures leave nothing of */
#define RW_CHECKPOINT_FULL 1   /* saves that survive all failures */

typedef struct {
    int save;             /* not 0: save now */
    int level;            /* RW_CHECKPOINT_FAST or RW_CHECKPOINT_FULL */
    const char *reason;   /* in words; never freed */
    double interval;      /* the best compute time between two saves */
    double overhead;      /* by which part of its compute time the run is expected to become longer: 0.1 is ten percent */
    double mtbf;          /* the mean time between failures that is believed in */
} rw_checkpoint_decision;

/*
 * The advisor of a run that begins now. `options` may be null. In the file `journal` it remembers what it has learned
 * for the next start; null for where `ropewalk run --checkpoint` says, or nowhere. A journal whose last start was not closed with `finished` counts a failure.
 */
int rw_checkpoint_advisor_open(const rw_checkpoint_advisor_options *options, const char *journal,
                               rw_checkpoint_advisor **advisor);
/* The end of the run: `finished` is not 0 if it is done or was stopped on purpose, 0 after a failure. */
int rw_checkpoint_advisor_close(rw_checkpoint_advisor *advisor, int finished);

/* A time step is over: whether to save now. */
int rw_checkpoint_step_end(rw_checkpoint_advisor *advisor, rw_checkpoint_decision *decision);
/* A save of a level begins, is done, could not be made. */
int rw_checkpoint_save_begin(rw_checkpoint_advisor *advisor, int level);
int rw_checkpoint_save_end(rw_checkpoint_advisor *advisor, int level);
int rw_checkpoint_save_failed(rw_checkpoint_advisor *advisor, int level);
/*
 * Between begin and end, if the program goes on while the save is written, by another thread for example: only the time until
 * now counts as the save's. It protects from rw_checkpoint_save_end on, which may then be called in the middle of a step; until
 * then no other save is advised. The advisor is still used by one thread at a time.
 */
int rw_checkpoint_save_copied(rw_checkpoint_advisor *advisor, int level);
/* Something failed that this process survives; it will restore its last save. */
int rw_checkpoint_failed(rw_checkpoint_advisor *advisor);
/* The state is restored: measured from rw_checkpoint_failed, or from the start of the run. */
int rw_checkpoint_restored_end(rw_checkpoint_advisor *advisor);
/* How many steps are still to be done. */
int rw_checkpoint_remaining_steps(rw_checkpoint_advisor *advisor, uint64_t steps);
/* The job will be ended after so many seconds: save at the next step, if there is time. */
int rw_checkpoint_preempt(rw_checkpoint_advisor *advisor, double notice);

/* The best compute time between two saves if one could save at any moment; not a number if that cannot be said. */
double rw_checkpoint_interval(double save, double mtbf);

/* ---- Where to save ---- */

typedef struct rw_checkpoint_store rw_checkpoint_store;
typedef struct rw_checkpoint_save rw_checkpoint_save;

/* Begin with RW_CHECKPOINT_STORE_OPTIONS and set the directory. */
typedef struct {
    size_t size;             /* sizeof this structure */
    const char *directory;   /* where checkpoints are; made if it does not exist. Null: where
                                `ropewalk run --checkpoint` says */
    uint32_t rank;           /* who saves */
    uint32_t ranks;          /* how many save together */
    const char *in_place;    /* null, or the folder below which the program writes files that stay there; it has to be in
                                the file system of the directory */
    uint32_t keep;           /* how many complete generations are kept; never fewer than two. The disk needs room for one
                                more: the oldest is removed when the newest exists */
    uint32_t restarts_max;   /* after how many starts from one generation that led to no newer one an older one is
                                taken; 0 for the default, three */
} rw_checkpoint_store_options;

#define RW_CHECKPOINT_STORE_OPTIONS { sizeof(rw_checkpoint_store_options), NULL, 0, 1, NULL, 2, 0 }

typedef struct {
    int found;              /* 0: there is nothing to restore, begin at the beginning */
    uint64_t generation;
    uint64_t step;          /* as given to rw_checkpoint_store_begin */
    const char *folder;     /* where this rank's files are: valid until the next call with this store, or, from
                               rw_checkpoint_restore_all, this thread's next call of that; null if not found */
    uint32_t quarantined;   /* how many torn or newer saves were put aside */
    uint32_t stuck;         /* how many could not be, as on a disk that can only be read; they are not restored */
} rw_checkpoint_restored;

int rw_checkpoint_store_open(const rw_checkpoint_store_options *options, rw_checkpoint_store **store);
int rw_checkpoint_store_close(rw_checkpoint_store *store);

/*
 * Finds the newest generation that is whole, moves newer and torn ones to the folder `quarantine`, of which the last two
 * generations stay there, and counts the start. Fails while another process saves as the same rank; `ropewalk checkpoints`
 * looks beside it. To be called once, before the first save. The first is for programs of one process.
 */
int rw_checkpoint_store_restore(rw_checkpoint_store *store, rw_checkpoint_restored *restored);
/*
 * The same for all ranks together, of which each calls it with its store. They meet in files of the directory, which all
 * have to see. `start` has to be another text at each start of the job, and the same for all ranks.
 */
int rw_checkpoint_store_restore_shared(rw_checkpoint_store *store, const char *start, double patience,
                                       rw_checkpoint_restored *restored);
/*
 * The same by one process that sees the directories of all ranks, before or in the place of them: rank 0, while the others
 * wait and have not opened their stores, or a script that starts the job. `options->rank` does not matter.
 */
int rw_checkpoint_restore_all(const rw_checkpoint_store_options *options, rw_checkpoint_restored *restored);

/*
 * Begins the next generation. All ranks open (and restore) before the first of them begins, and begin equally often. From the
 * first on no other process can begin one here as this rank, until the store is closed or this process ends.
 */
int rw_checkpoint_store_begin(rw_checkpoint_store *store, uint64_t step, rw_checkpoint_save **save);
/* The folder to write into (in place: the one that the options name). Valid as long as the save. */
const char *rw_checkpoint_save_folder(const rw_checkpoint_save *save);
/* In place: a file, or a folder with all that is in it, belongs to the save. */
int rw_checkpoint_save_add(rw_checkpoint_save *save, const char *path);
/* In place: the files are also results of the program's, and stay when the generation is removed. */
int rw_checkpoint_save_keep(rw_checkpoint_save *save);
/*
 * Of which level it is; RW_CHECKPOINT_FULL by default. Under `ropewalk run --partner` full saves are copied to another host,
 * and fast ones are not. All ranks say the same.
 */
int rw_checkpoint_save_level(rw_checkpoint_save *save, int level);
/*
 * Hashes the files, brings them to the disk, and makes the save exist by a rename. Takes the save, also on failure. The
 * generation is complete when all ranks have done that, and can be restored then.
 */
int rw_checkpoint_store_commit(rw_checkpoint_store *store, rw_checkpoint_save *save);
/* Gives the save up and removes what was written of it (in place, files stay). */
int rw_checkpoint_store_abandon(rw_checkpoint_store *store, rw_checkpoint_save *save);
/* Removes this rank's oldest generations, but those that are to be kept. Counts across restarts. */
int rw_checkpoint_store_retire(rw_checkpoint_store *store);
/* Moves a file or folder that belongs to no save to the folder `quarantine`, with a note why. */
int rw_checkpoint_store_quarantine(rw_checkpoint_store *store, const char *path, const char *why);

#ifdef __cplusplus
}
#endif

#endif
