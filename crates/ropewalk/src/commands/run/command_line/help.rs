//! What `ropewalk run --help` says.

/// The text for `--help`.
pub(in super::super) const HELP: &str = "\
Run N processes (ranks) of a program: MPI programs (MPICH and what descends from it, Open MPI 4), and any other.

Usage: ropewalk run [OPTIONS] PROGRAM [ARGUMENTS] [: [OPTIONS] PROGRAM [ARGUMENTS]]..
Options have one dash or two, as with mpiexec of MPICH (Hydra).

What runs:
  -n, -np, --ranks N          how many processes of this program [default: a slot each of given hosts, else 1]
  --env NAME=VALUE            set a variable for this program; also -env NAME VALUE
  -genv NAME VALUE            set a variable for all programs; also NAME=VALUE
  -genvall, -genvnone, -genvlist A,B  which variables of this command all programs get [default: all]
  -envall, -envnone, -envlist A,B     which of them this program gets instead
  --wdir DIR                  start this program there
  -configfile FILE            read programs and their options from a file, one line each
Where:
  -hosts H1[:N],H2..          on these hosts, N ranks each in turn
  -f, -hostfile FILE          hosts of a file: HOST, HOST:N or HOST slots=N max_slots=M
  -ppn N                      N ranks on each host in turn
  -map-by slot|node           fill hosts one by one, or deal ranks in turn
  -rankmap 0,0,1,2            each rank's host by its number in their order; (FIRST,HOSTS,N) for hosts in a row, N ranks each
  -bind-to none|PART[:N]|rr|user:LIST  the processors of each rank: N such parts of its host side by side, of hwthread, core,
                              l1cache..l5cache (l1dcache, l1icache..), numa, die, socket, machine; one processor in turn; or
                              what LIST has for each rank of a host: 0+2,4-7,1x2 is processors 0 and 2, 4 to 7, 1 for two ranks
  -map-by PART[:N]            with -bind-to PART: ranks in turn to such parts, and inside of them as that says
                              [default: the same parts]
  -order-nodes ascending|descending  hosts by their slots
  -skip-launch-node           no rank on this host
  -rmk user|slurm|pbs|sge|lsf|ll|cobalt  the batch system that gives the hosts; user: none [default: the one that there is]
  -launcher ssh|rsh|slurm|lsf|sge|fork, -launcher-exec CMD  how agents are started on other hosts
  -enable-x, -disable-x       with ssh: windows of the programs come here, or not
  -iface ADDRESS|NAME         this machine's address, or interface, for the other hosts; MPICH is told the name
  -localhost NAME             the name or address of this machine for the other hosts
  -disable-hostname-propagation  do not tell MPICH the names of the hosts: it finds them itself
  -gpus-per-proc N|auto       N graphics processors for each rank, in CUDA_VISIBLE_DEVICES [default: auto, nothing is said]
  --encrypt                   encrypt what launcher, agents and programs that use ropewalk send from host to host;
                              what MPI libraries send by themselves is not encrypted
  -usize N|system|infinite    room for processes, as MPI_UNIVERSE_SIZE [default: infinite, which is not told]
  -nameserver HOST[:PORT]     keep names that programs publish (MPI_Publish_name) at a `ropewalk nameserver`, for other jobs too
                              [default port: 6392]
  --nameserver-key FILE       its key [default: ~/.ropewalk-nameserver.key]
  --arity N                   how many agents each agent starts [default: 16]
Output and input:
  -l, --label                 put the rank before each line; lines beyond 2 MiB come in pieces, whose cuts are marked with
                              [...] if lines of other ranks are between them
  -prepend-pattern P, -outfile-pattern P, -errfile-pattern P   %r rank, %h host
  -output-from RANKS|all|none only what these ranks write, as in 0,4-7 [default: all]
  --stdin 0|all|none          who reads standard input [default: 0; none with restart]; also -s
  -print-rank-map             say at first which ranks run on which host
  -print-all-exitcodes        say at the end how each rank ended
  --log json                  tell on standard error what happens, one object a line
  --metrics [ADDRESS:]PORT    let Prometheus read how the job is, from this host unless told otherwise
  --report FILE.html          write a page about the job: processes, fences, failures, output, cost of saving
  -verbose                    say who started and ended, and who put another value under a key of PMI
When something fails:
  --on-failure abort|continue what happens to the others [default: abort]
  --on-failure respawn[=N]    start the rank again, at most N times each [3]; it finds ROPEWALK_INCARNATION=1, 2..
  --on-failure restart[=N]    start the whole job again, at most N times; its ranks find ROPEWALK_ATTEMPT=1, 2..
  --restart-limit N           with restart: give up after N attempts in a row that reached no step that was not reached
                              before, in a save or told to an advisor [default: 5; none with restart=N]
  --stopped notice|fail       name a rank that a signal stopped for longer than --detect, or kill it and treat it as a
                              failure [default: notice]
  --checkpoint DIR            start each attempt from the newest whole checkpoint in DIR, and say at the end what saving
                              cost; ranks find ROPEWALK_CHECKPOINT_DIR, and ROPEWALK_RESTORE if there is one
  --partner                   DIR is each host's own: each also copies what another host saves, and the job goes on from
                              that if a host is lost, on a new one in its place or on those that are left
  --host-mtbf auto|TIME       a guess of the mean time between losses of a host, which what happens corrects; with
                              --host-mtbf-known TIME nothing does [default: auto, 5 years divided by the hosts]
  --upload file:///FOLDER     upload each newest checkpoint there in the background, and fetch it where nothing is left
                              in DIR (if built with the feature object-store)
  --adapter openfoam          the program is a solver of OpenFOAM: prepare its case before each attempt, and have it save
                              itself when that is best; by default in the folder checkpoints of the case
  --mtbf auto|TIME            a guess of the mean time between failures, which what happens corrects: the journal in DIR
                              remembers it [default: auto, 5 years divided by the hosts]
  --mtbf-known TIME           the same if it is known
  --detect SECONDS            how long a host may be silent before it counts as lost [default: 3]
  --start-timeout SECONDS     how long a host may take to bring its agent up, login and all, before it counts as lost
                              [default: 10 times --detect]; after once --detect it is named
  --grace SECONDS             how long ranks have from the request to end, and their advisor for a last save, until they
                              are killed [default: 10]
  --stall TIME|off            end the job with exit code 124 if no rank makes progress for so long: no output, no request
                              by PMI, no bytes read, written or sent over TCP, no step told to the advisor of its
                              checkpoints; messages through shared memory cannot be seen, so take more than the longest
                              silent part of the program [default: off; 60 from a loss on with continue and respawn, as
                              long as a rank of MPI lives, which would wait for the lost one for ever]
  --stall-counts-cpu          processor time is progress too, for programs that compute in silence; ranks of MPI that
                              wait spin, and are not found then
  --inject-mtbf SECONDS, --seed N  kill a random rank now and then, on average after so long
  --timeout SECONDS           end the job after this time, with exit code 124, or 75 if it has saved for that
  -version, -info             say which version this is, and which launchers and batch systems there are

Signals: INT, TERM, HUP and QUIT end the job, a second one at once; USR1 and USR2 go to all ranks;
TSTP (^Z) suspends the job until CONT (fg). A job with an advisor of checkpoints saves before it ends: after TERM and
at the end of --timeout if that fits into --grace; after USR1 however long it takes; and before the end of a Slurm
allocation, if there is --checkpoint.
Of Hydra's options that tune only itself (-demux, -topolib, -profile, -pmi-port) and variables of that kind nothing comes;
-verbose names them.
Variables: HYDRA_HOST_FILE, HYDRA_ENV, HYDRA_LAUNCHER, HYDRA_LAUNCHER_EXEC, HYDRA_LAUNCHER_EXTRA_ARGS (options for ssh
or srun), HYDRA_IFACE, HYDRA_BINDING, HYDRA_MAPPING, HYDRA_RMK, HYDRA_HOSTNAME_PROPAGATION, HYDRA_DEBUG (as -verbose),
MPIEXEC_TIMEOUT, and those of batch systems; ROPEWALK_LIBRARY_DIR (where libpmi.so.0 is, for Open MPI).
Files: options of HYDRA_CONFIG_FILE, ~/.mpiexec.hydra.conf or /etc/mpiexec.hydra.conf, the first that is there, unless
-configfile names one; those of the command count more.
A TIME is in seconds, or has its units: 500ms, 10m, 1h30m.
Exit code: the first failing rank's, 128 + n for signal n, 124 time-out, 75 if the job was ended by a signal or a time
limit, but saved a checkpoint for that: start it again; 125 trouble of the launcher's own,
126 and 127 for a program that cannot be executed or found.";
