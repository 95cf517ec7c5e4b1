//! The sections of manual pages that clap knows nothing of.

use std::fmt::Write as _;

use crate::{
    reduce::RUN_OPTIONS,
    run::{reader_notes, reader_variables},
};

/// The sections of a command's page.
struct Sections {
    /// The name of the page.
    page: &'static str,
    examples: &'static [Example],
    exit_status: &'static [Entry],
    environment: &'static [Entry],
    files: &'static [Entry],
    see_also: &'static [&'static str],
}

/// Something that is listed, and the words on it.
type Entry = (&'static str, &'static str);
/// The purpose of a command, and the command.
type Example = (&'static str, &'static str);

/// The sections behind those that clap makes of the page `name`, as groff's `man` macros.
pub(super) fn of(name: &str) -> String {
    let found = PAGES.iter().find(|sections| sections.page == name);
    let mut text = String::new();
    if name == RUN {
        text += &heading("NOTES");
        for note in reader_notes() {
            text += &format!(".PP\n{}\n", escaped(note));
        }
    }
    if let Some(examples) = found.map(|sections| sections.examples) {
        text += &heading("EXAMPLES");
        for (purpose, command) in examples {
            let command = escaped(command);
            // Writing to a string does not fail.
            let _ = write!(
                text,
                ".PP\n{}\n.PP\n.RS 4\n.nf\n{command}\n.fi\n.RE\n",
                escaped(purpose)
            );
        }
    }
    let exit_status = found.map_or(OTHERS_EXIT_STATUS, |sections| sections.exit_status);
    text += &listed("EXIT STATUS", exit_status.iter().copied());
    if let Some(sections) = found {
        let more = run_variables(name);
        text += &listed("ENVIRONMENT", more.chain(sections.environment.iter().copied()));
        text += &listed("FILES", sections.files.iter().copied());
    }
    let see_also = found.map_or(&["ropewalk"][..], |sections| sections.see_also);
    let pages: Vec<_> = see_also
        .iter()
        .map(|page| format!("\\fB{}\\fR(1)", escaped(page)))
        .collect();
    // Names are not hyphenated.
    text + &heading("SEE ALSO") + ".nh\n" + &pages.join(",\n") + "\n"
}

/// The examples of a page, for help on a terminal.
pub(crate) fn examples(page: &str) -> Option<String> {
    let sections = PAGES.iter().find(|sections| sections.page == page)?;
    let mut text = "Examples:".to_owned();
    for (purpose, command) in sections.examples {
        // Writing to a string does not fail.
        let _ = write!(text, "\n  {purpose}\n    {}", command.replace('\n', "\n    "));
    }
    (!sections.examples.is_empty()).then_some(text)
}

/// The variables that stand for options of `run` that a command has.
fn run_variables(page: &str) -> impl Iterator<Item = Entry> {
    reader_variables(match page {
        RUN => None,
        REDUCE | BENCH_REDUCE => Some(RUN_OPTIONS),
        _ => Some(&[]),
    })
}

fn listed(title: &str, entries: impl Iterator<Item = (&'static str, &'static str)>) -> String {
    let mut text = String::new();
    for (term, words) in entries {
        let _ = write!(text, ".TP\n\\fB{}\\fR\n{}\n", escaped(term), escaped(words));
    }
    match text.is_empty() {
        true => text,
        false => heading(title) + &text,
    }
}

fn heading(title: &str) -> String {
    format!(".SH \"{title}\"\n")
}

/// Text of which groff takes nothing for its own.
fn escaped(text: &str) -> String {
    let text = text.trim().replace('\\', "\\e").replace('-', "\\-");
    let lines = text.lines().map(|line| match line.starts_with(['.', '\'']) {
        true => format!("\\&{line}"),
        false => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

const RUN: &str = "ropewalk-run";
const REDUCE: &str = "ropewalk-reduce";
const BENCH_REDUCE: &str = "ropewalk-bench-reduce";

const TRANSPORTS: Entry = (
    "ROPEWALK_TRANSPORTS",
    "The transports that ranks may use, of those that \"ropewalk info\" shows; by default all of them.",
);

const OTHERS_EXIT_STATUS: &[Entry] = &[
    ("0", "The command did its work."),
    ("1", "It did not, and says why on standard error."),
    ("2", "An option or an input cannot be used."),
];

const PAGES: &[Sections] = &[
    Sections {
        page: "ropewalk",
        examples: &[
            (
                "Run four processes of an MPI program:",
                "ropewalk run -n 4 ./ring",
            ),
            ("See a job go on although a worker is killed:", "ropewalk demo"),
        ],
        exit_status: OTHERS_EXIT_STATUS,
        environment: &[],
        files: &[],
        see_also: &[
            RUN,
            REDUCE,
            "ropewalk-plan",
            "ropewalk-checkpoints",
            "ropewalk-bench",
        ],
    },
    Sections {
        page: RUN,
        examples: &[
            (
                "Four ranks of a program on this host:",
                "ropewalk run -n 4 ./ring",
            ),
            (
                "Eight ranks on each of two hosts, which are reached by ssh:",
                "ropewalk run -hosts a:8,b:8 ./solver case.txt",
            ),
            (
                "The hosts of a file, two ranks on each, with the rank before each line:",
                "ropewalk run -f hosts -ppn 2 -l python train.py",
            ),
            (
                "Two programs in one job:",
                "ropewalk run -n 1 ./master : -n 4 ./worker",
            ),
            (
                "Start the job again from its last save when a rank fails, three times at most:",
                "ropewalk run -n 4 --checkpoint saves --on-failure restart=3 ./heat",
            ),
            (
                "In a Slurm allocation, on all of its hosts:",
                "salloc -N 2 -n 8 ropewalk run ./solver",
            ),
        ],
        exit_status: &[
            (
                "0",
                "All ranks succeeded; or, with \"--on-failure continue\", those that were left did.",
            ),
            ("1 to 123", "The exit code of the first rank that failed."),
            (
                "75",
                "The job was ended by a signal or a time limit, and has saved a checkpoint for that: start it again.",
            ),
            ("124", "\"--timeout\" or \"--stall\" ended the job."),
            (
                "125",
                "The launcher could not do its work: wrong options, or hosts that do not start.",
            ),
            ("126, 127", "A program cannot be executed, or is not found."),
            ("128 + n", "The first rank that failed was killed by signal n."),
        ],
        environment: &[
            (
                "PMI_RANK, PMI_SIZE",
                "Set for ranks: the rank, and the number of ranks.",
            ),
            (
                "RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT",
                "Set for ranks, as PyTorch reads them.",
            ),
            (
                "ROPEWALK_INCARNATION",
                "Set for ranks: 0 for the first process of a rank; grows with respawn.",
            ),
            (
                "ROPEWALK_ATTEMPT",
                "Set for ranks: the attempt, from 1, with restart.",
            ),
            TRANSPORTS,
            (
                "ROPEWALK_CHECKPOINT_DIR, ROPEWALK_RESTORE",
                "Set for ranks: the directory of --checkpoint, and the save to start from, if there is one.",
            ),
            ("TERM", "There is no progress line if it is missing or \"dumb\"."),
            (
                "TMPDIR",
                "The folder for the files of PMIx servers; /tmp by default.",
            ),
        ],
        files: &[
            (
                "~/.mpiexec.hydra.conf, /etc/mpiexec.hydra.conf",
                "Options, unless HYDRA_CONFIG_FILE or -configfile names another file.",
            ),
            (
                "~/.ropewalk-nameserver.key",
                "The key of the name server, unless --nameserver-key names another one.",
            ),
        ],
        see_also: &[
            "ropewalk",
            "ropewalk-nameserver",
            "ropewalk-checkpoints",
            "ropewalk-plan",
            "ssh",
            "srun",
        ],
    },
    Sections {
        page: REDUCE,
        examples: &[
            (
                "The sum of some arrays:",
                "ropewalk reduce --op sum -o total.npy part-*.npy",
            ),
            (
                "The mean of many arrays, on two hosts:",
                "find /data -name 'part-*.npy' -print0 |\n    \
                 ropewalk reduce --op mean -hosts a:8,b:8 -o mean.npy --files-from -",
            ),
        ],
        exit_status: OTHERS_EXIT_STATUS,
        environment: &[TRANSPORTS],
        files: &[(
            "*.npy",
            "Arrays in the format of NumPy. The file of the result appears whole, in the place of an older one.",
        )],
        see_also: &["ropewalk", RUN],
    },
    Sections {
        page: "ropewalk-plan",
        examples: &[
            (
                "Saves take 0.6 s, something fails every 25 s, and a step takes 1.3 s:",
                "ropewalk plan --save 0.6 --mtbf 25 --step 1.3 --total 214",
            ),
            (
                "The failures are those of Slurm's log:",
                "sacct --allocations --parsable2 --format=JobID,State,End > log\n\
                 ropewalk plan --save 2m --failures log",
            ),
        ],
        exit_status: OTHERS_EXIT_STATUS,
        environment: &[],
        files: &[],
        see_also: &["ropewalk-rehearse", "ropewalk-checkpoints", RUN],
    },
    Sections {
        page: "ropewalk-rehearse",
        examples: &[(
            "A hundred runs under each way to save:",
            "ropewalk rehearse --save 0.6 --mtbf 25 --step 1.3 --total 214 --runs 100",
        )],
        exit_status: OTHERS_EXIT_STATUS,
        environment: &[],
        files: &[],
        see_also: &["ropewalk-plan", RUN],
    },
    Sections {
        page: "ropewalk-checkpoints",
        examples: &[("The saves of a job, each hashed:", "ropewalk checkpoints saves")],
        exit_status: OTHERS_EXIT_STATUS,
        environment: &[],
        files: &[
            (
                "generation-N/",
                "The save N: a folder for each rank, and a manifest for each once its files are whole.",
            ),
            (
                "journal",
                "The costs and failures by which the advisor decides when to save.",
            ),
        ],
        see_also: &["ropewalk-plan", RUN],
    },
    Sections {
        page: "ropewalk-nameserver",
        examples: &[(
            "Share names between two jobs:",
            "ropewalk nameserver &\nropewalk run -nameserver localhost ./server",
        )],
        exit_status: OTHERS_EXIT_STATUS,
        environment: &[("HOME", "The folder of the key, unless --key-file names it.")],
        files: &[(
            "~/.ropewalk-nameserver.key",
            "The key, unless --key-file names another one. It is made if it is missing.",
        )],
        see_also: &["ropewalk", RUN],
    },
    Sections {
        page: "ropewalk-openfoam",
        examples: &[
            (
                "Build the function object, once for each OpenFOAM:",
                "ropewalk openfoam build",
            ),
            (
                "Run a solver on eight ranks:",
                "ropewalk openfoam run -n 8 icoFoam -parallel",
            ),
        ],
        exit_status: OTHERS_EXIT_STATUS,
        environment: &[],
        files: &[],
        see_also: &["ropewalk-openfoam-build", "ropewalk-openfoam-run"],
    },
    Sections {
        page: "ropewalk-openfoam-build",
        examples: &[
            ("For Debian's package openfoam:", "ropewalk openfoam build"),
            (
                "For another OpenFOAM:",
                "source ~/OpenFOAM/OpenFOAM-v1912/etc/bashrc\nropewalk openfoam build",
            ),
        ],
        exit_status: OTHERS_EXIT_STATUS,
        environment: &[
            (
                "WM_PROJECT_DIR",
                "The OpenFOAM to build for. Without it, or if it is /usr/share/openfoam, it is Debian's.",
            ),
            (
                "FOAM_USER_LIBBIN",
                "The folder for the library, unless --output names it.",
            ),
            (
                "RW_CHECKPOINT_LIBRARY",
                "The library librw_checkpoint.so, if it is not beside the command or in ../lib.",
            ),
        ],
        files: &[
            (
                "~/.local/share/ropewalk/libropewalkOpenFOAM.so",
                "The library, without FOAM_USER_LIBBIN and --output. XDG_DATA_HOME stands for ~/.local/share.",
            ),
            (
                "~/.cache/ropewalk/openfoam-*",
                "Debian's sources, for later builds. XDG_CACHE_HOME stands for ~/.cache.",
            ),
        ],
        see_also: &["ropewalk-openfoam-run", "ropewalk-openfoam"],
    },
    Sections {
        page: "ropewalk-openfoam-run",
        examples: &[
            ("The case in this folder:", "ropewalk openfoam run icoFoam"),
            (
                "Eight ranks, with six hours as a first guess of the mean time between failures:",
                "ropewalk openfoam run --mtbf 6h -n 8 icoFoam -parallel",
            ),
        ],
        exit_status: &[("as ropewalk run", "The codes are those of ropewalk-run(1).")],
        environment: &[(
            "ROPEWALK_OPENFOAM_LIBRARY",
            "The function object, if it is in none of the places where \"ropewalk openfoam build\" puts it.",
        )],
        files: &[(
            "checkpoints",
            "The saves, in the folder of the case, unless --checkpoint names another one.",
        )],
        see_also: &["ropewalk-openfoam-build", RUN, "ropewalk-checkpoints"],
    },
    Sections {
        page: BENCH_REDUCE,
        examples: &[(
            "Collective calls between two hosts:",
            "ropewalk bench reduce -hosts a:8,b:8 --calls allreduce --bytes 8,64KiB,8MiB",
        )],
        exit_status: OTHERS_EXIT_STATUS,
        environment: &[TRANSPORTS],
        files: &[],
        see_also: &["ropewalk-bench", "ropewalk-bench-rpc", RUN],
    },
    Sections {
        page: "ropewalk-sim-reduce",
        examples: &[(
            "Twenty hosts, of which one dies after 40 ms:",
            "ropewalk sim reduce --hosts 20 --size 8MiB --kill 5:40ms --policy streaming",
        )],
        exit_status: OTHERS_EXIT_STATUS,
        environment: &[],
        files: &[],
        see_also: &["ropewalk-sim", "ropewalk-sim-launch"],
    },
    Sections {
        page: "ropewalk-bench",
        examples: &[
            (
                "Collective calls of four ranks on this host:",
                "ropewalk bench reduce -n 4",
            ),
            (
                "Remote calls and bulk transfers, within 40 seconds:",
                "ropewalk bench rpc --quick",
            ),
        ],
        exit_status: OTHERS_EXIT_STATUS,
        environment: &[],
        files: &[],
        see_also: &[BENCH_REDUCE, "ropewalk-bench-rpc"],
    },
    Sections {
        page: "ropewalk-bench-rpc",
        examples: &[
            (
                "Bulk transfers of this host, as a table for a document:",
                "ropewalk bench rpc --case bulk_pull --markdown",
            ),
            (
                "Between two hosts; the first command runs on the host named a:",
                "ropewalk bench rpc --serve --bind 0.0.0.0:7000 --key-file key\n\
                 ropewalk bench rpc --connect tcp://a:7000 --key-file key",
            ),
        ],
        exit_status: OTHERS_EXIT_STATUS,
        environment: &[],
        files: &[],
        see_also: &["ropewalk-bench", BENCH_REDUCE, "ropewalk-info"],
    },
    Sections {
        page: "ropewalk-completions",
        examples: &[
            (
                "Complete the words of this shell, which is bash:",
                "source <(ropewalk completions bash)",
            ),
            (
                "Those of each new one:",
                "ropewalk completions bash \\\n  > ~/.local/share/bash-completion/completions/ropewalk",
            ),
        ],
        exit_status: OTHERS_EXIT_STATUS,
        environment: &[],
        files: &[],
        see_also: &["ropewalk", "ropewalk-man"],
    },
    Sections {
        page: "ropewalk-demo",
        examples: &[(
            "Two of four workers are killed; the page is demo/report.html:",
            "ropewalk demo --size small --workers 4 --kill 2 --out demo",
        )],
        exit_status: OTHERS_EXIT_STATUS,
        environment: &[TRANSPORTS],
        files: &[],
        see_also: &[RUN, REDUCE],
    },
    Sections {
        page: "ropewalk-info",
        examples: &[(
            "The providers of this host, for a program:",
            "ropewalk info --json",
        )],
        exit_status: OTHERS_EXIT_STATUS,
        environment: &[],
        files: &[],
        see_also: &[RUN, "ropewalk-bench"],
    },
    Sections {
        page: "ropewalk-man",
        examples: &[(
            "Pages that man finds:",
            "ropewalk man ~/.local/share/man/man1\nman ropewalk-run",
        )],
        exit_status: OTHERS_EXIT_STATUS,
        environment: &[],
        files: &[],
        see_also: &["ropewalk", "ropewalk-completions"],
    },
    Sections {
        page: "ropewalk-sim",
        examples: &[
            ("The start of 10,000 ranks:", "ropewalk sim launch --ranks 10000"),
            ("A reduction of eight hosts:", "ropewalk sim reduce --size 1MiB"),
        ],
        exit_status: OTHERS_EXIT_STATUS,
        environment: &[],
        files: &[],
        see_also: &["ropewalk-sim-launch", "ropewalk-sim-reduce"],
    },
    Sections {
        page: "ropewalk-sim-launch",
        examples: &[(
            "A tree in which each node starts 8 or 32 agents, beside a star:",
            "ropewalk sim launch --hosts 500 --ranks 10000 --arity 8,32,500",
        )],
        exit_status: OTHERS_EXIT_STATUS,
        environment: &[],
        files: &[],
        see_also: &["ropewalk-sim", "ropewalk-sim-reduce", RUN],
    },
];
