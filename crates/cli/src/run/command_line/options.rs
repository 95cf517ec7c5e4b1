//! The table of options of `ropewalk run`, one row each, with the variables that stand for options.
//!
//! A row has the help, how far the option reaches, all its spellings with its value, and what it does. Parser, help,
//! manual page, completions and suggestions follow from the rows: to add an option, add a row.

use anyhow::Context;
use ropewalk_launch::{
    Inherited, OnFailure, OnStopped, Part, Singleton, StdinSource, hosts::parse_hosts,
    mpi::service::PmiChoice,
};

use super::{
    Command, checkpoints,
    failures::{on_failure, stall, time_limit},
    given::Given,
    hosts::{self, gpus_per_rank, membind},
    network::metrics_address,
    programs::{Program, inherited, list, universe},
    resources::{ResourceManager, read_hosts},
    settings::Settings,
};
use crate::run::{pattern::Pattern, shown_ranks::ShownRanks};

/// An option, or a variable.
pub(super) struct Row {
    /// All spellings, the usual one first, with the dashes that the help shows, and the value behind the last.
    /// Variables have no dashes. A value without capital letters lists the words that there are.
    pub(super) usage: &'static str,
    /// Words with any space between them.
    pub(super) help: &'static str,
    pub(super) apply: Apply,
}

type ToJob = fn(&mut Settings<'_>, &mut Given<'_>) -> anyhow::Result<()>;
type ToProgram = fn(&mut Program, &mut Given<'_>) -> anyhow::Result<()>;

/// How far an option reaches, and what it does.
#[derive(Clone, Copy)]
pub(super) enum Apply {
    /// For the whole job.
    Job(ToJob),
    /// For the program behind it, one of several with `:` between them.
    Program(ToProgram),
    /// A variable for the whole job, read after all options, which count more.
    Variable(ToJob),
}

/// Options that the help shows together.
pub(super) struct Group {
    pub(super) heading: &'static str,
    pub(super) rows: &'static [Row],
}

/// Makes groups of rows; the names in front are those of the settings and of the given value.
macro_rules! groups {
    (|$to:ident, $given:ident| $($heading:literal {
        $($(#[doc = $help:literal])+ $scope:ident $usage:literal => $apply:expr;)+
    })+) => {
        #[allow(unused_variables, reason = "many options take no value")]
        pub(super) static GROUPS: &[Group] = &[$(Group {
            heading: $heading,
            rows: &[$(Row {
                usage: $usage,
                help: concat!($($help),+),
                apply: Apply::$scope(|$to, $given| {
                    $apply;
                    Ok(())
                }),
            }),+],
        }),+];
    };
}

groups! { |to, given|
    "One program (an option counts for the program behind it)" {
        /// Number of processes (ranks) [default: -ppn on each host if given, else one for each slot of the given hosts,
        /// else 1]
        Program "-np, -n, --ranks N" => to.ranks = Some(given.number()?);
        /// Set a variable; also in two words, NAME VALUE
        Program "--env NAME=VALUE" => to.environment.push(given.variable()?);
        /// Pass on all variables of this command, whatever the other programs get
        Program "-envall" => to.inherited = Some(Inherited::All);
        /// Pass on no variable of this command
        Program "-envnone" => to.inherited = Some(Inherited::Only(Vec::new()));
        /// Pass on only these variables of this command
        Program "-envlist A,B" => to.inherited = Some(list(&given.next()?));
        /// Start it in this folder
        Program "--wdir, -wd DIR" => to.working_directory = Some(given.path()?);
    }
    "All programs" {
        /// Set a variable; also in two words, NAME VALUE
        Job "-genv NAME=VALUE" => to.spec.environment.variables.push(given.variable()?);
        /// Pass on all variables of this command [default]
        Job "-genvall" => to.inherited = Some(Inherited::All);
        /// Pass on no variable of this command
        Job "-genvnone" => to.inherited = Some(Inherited::Only(Vec::new()));
        /// Pass on only these variables of this command
        Job "-genvlist A,B" => to.inherited = Some(list(&given.next()?));
        /// all, none or list:A,B, as -genvall, -genvnone and -genvlist
        Variable "HYDRA_ENV" => if to.inherited.is_none() { to.inherited = Some(inherited(given)?) };
        /// Read programs and their options from a file, one program a line; a line without a program is for all that
        /// follow
        Job "-configfile FILE" => to.read_config(&given.path()?)?;
        /// MPI_UNIVERSE_SIZE, how many processes there is room for: N, or the slots of all hosts; infinite does not
        /// set it [default: infinite]
        Job "-usize N|system|infinite" => to.spec.pmi.universe = universe(given)?;
        /// Serve a process that runs already and waits at this port; MPI_Init of MPICH starts mpiexec so if a program
        /// without a process manager spawns others
        Job "-pmi_args, -pmi-args PORT IFACE KEY PID" => {
            let port = u16::try_from(given.number()?).with_context(|| format!("{given} wants a port"))?;
            // To the interface and the key no client gives a meaning.
            let _ = (given.next()?, given.next()?);
            to.spec.pmi.singleton = Some(Singleton { port, pid: given.number()? });
        };
    }
    "Hosts and processors" {
        /// Run on these hosts, N ranks on each in turn
        Job "-hosts, -host, -H, -hostlist, -machine, -machines, -machinelist H1[:N],H2.." =>
            to.hosts.named.extend(parse_hosts(&given.text()?)?);
        /// Run on the hosts of a file with lines HOST, HOST:N or HOST slots=N max_slots=M
        Job "-hostfile, -f, -machinefile FILE" => to.hosts.named.extend(read_hosts(&given.path()?, to.around)?);
        /// As -hostfile, if no option names hosts
        Variable "HYDRA_HOST_FILE" => if to.hosts.named.is_empty() && to.spec.pmi.singleton.is_none() {
            to.hosts.named = read_hosts(&given.path()?, to.around)?;
        };
        /// The batch system whose hosts are used; user: none [default: the one in whose allocation this command runs]
        Job "-rmk user|slurm|ll|lsf|sge|pbs|cobalt" => to.hosts.manager = Some(given.one_of(&ResourceManager::NAMED)?);
        /// As -rmk
        Variable "HYDRA_RMK" => if to.hosts.manager.is_none() {
            to.hosts.manager = Some(given.one_of(&ResourceManager::NAMED)?);
        };
        /// Use hosts in the order of their slots
        Job "-order-nodes ascending|descending" => to.hosts.order = Some(hosts::order(given)?);
        /// Run no rank on this host
        Job "-skip-launch-node" => to.hosts.skips_own = true;
        /// Run N ranks on each host in turn
        Job "-ppn, -perhost, -npernode, -N N" => to.per_host(given.number()?.max(1));
        /// Each rank's host, by its number in their order, as in 0,0,1,2; (FIRST,HOSTS,N) stands for N ranks on each of
        /// HOSTS hosts in a row
        Job "-rankmap MAP" => to.spec.placement.rank_map = Some(given.parsed("each rank's host, as in 0,0,1,2")?);
        /// Fill hosts one by one (slot), or deal ranks to them in turn (node). The others count with -bind-to: deal
        /// ranks to such parts of a host in turn, or to N side by side (core:N); ppr:N:node runs N ranks on each host,
        /// ppr:N:socket on each socket; :PE=C behind it binds each rank to C cores [default: slot, and the parts of
        /// -bind-to]
        Job "-map-by slot|node|hwthread|core|l1cache|l2cache|l3cache|numa|socket|machine" =>
            to.map_by(given)?;
        /// As -map-by
        Variable "HYDRA_MAPPING" => to.binding.map_by_variable(given)?;
        /// Bind each rank to such a part of its host, or to N side by side (core:N), to one processor in turn (rr), or
        /// to its entry in a list: user:0+2,4-7,1x2 is processors 0 and 2, 4 to 7, and 1 for two ranks. Parts are also
        /// die, l4cache, l5cache, and l1dcache, l1icache and so on [default: none]
        Job "-bind-to, -binding none|hwthread|core|l1cache|l2cache|l3cache|numa|socket|machine|rr|user:" =>
            to.binding.bind_to(given)?;
        /// As -bind-to
        Variable "HYDRA_BINDING" => if to.binding.binding.is_none() { to.binding.bind_to(given)? };
        /// Give each rank N graphics processors, in CUDA_VISIBLE_DEVICES; auto leaves the variable as it is [default:
        /// auto]
        Job "-gpus-per-proc, -g N|auto" => to.spec.placement.gpus_per_rank = gpus_per_rank(given)?;
        /// Where memory lies: where it is first touched, as Linux has it; Hydra's other policies are refused
        Job "-membind none|firsttouch" => membind(given)?;
        /// As -membind
        Variable "HYDRA_MEMBIND" => membind(given)?;
    }
    "Agents and network" {
        /// How agents are started on other hosts; fork: all on this one [default: as the batch system wants it, else
        /// ssh]
        Job "-launcher, -bootstrap ssh|rsh|slurm|lsf|sge|fork" => to.launching.launcher = Some(given.text()?);
        /// As -launcher
        Variable "HYDRA_LAUNCHER, HYDRA_BOOTSTRAP" => if to.launching.launcher.is_none() {
            to.launching.launcher = Some(given.text()?);
        };
        /// Start agents by this command instead, as CMD HOST COMMAND
        Job "-launcher-exec, -bootstrap-exec CMD" => to.launching.command = Some(given.text()?);
        /// As -launcher-exec
        Variable "HYDRA_LAUNCHER_EXEC, HYDRA_BOOTSTRAP_EXEC" => if to.launching.command.is_none() {
            to.launching.command = Some(given.text()?);
        };
        /// More options for ssh, srun or the other command that starts agents
        Variable "HYDRA_LAUNCHER_EXTRA_ARGS" => to.launching.further = given.text()?;
        /// With ssh: show windows of the programs here, or not
        Job "-enable-x, -disable-x" => to.launching.forwards_x = Some(given.enables());
        /// Each agent starts at most N others [default: 16]
        Job "--arity N" => to.spec.agents.arity = given.number()?.max(1);
        /// The address or interface of this machine for the other hosts; MPICH is told the name of the interface
        Job "-iface ADDRESS|NAME" => to.network.interface = Some(given.text()?);
        /// As -iface
        Variable "HYDRA_IFACE" => if to.network.interface.is_none() { to.network.interface = Some(given.text()?) };
        /// The name or address of this machine for the other hosts
        Job "-localhost NAME" => to.network.own_name = Some(given.text()?);
        /// Do not tell MPICH the names of the hosts, so that it finds them itself; or do [default]
        Job "-disable-hostname-propagation, -enable-hostname-propagation" =>
            to.network.propagates_names = Some(given.enables());
        /// 1 or 0, as -enable-hostname-propagation and -disable-hostname-propagation
        Variable "HYDRA_HOSTNAME_PROPAGATION" => if to.network.propagates_names.is_none() {
            to.network.propagates_names = Some(given.truth()?);
        };
        /// The protocol by which ranks find each other: PMIx by libpmix, which a helper on each host loads; PMI-1 and
        /// PMI-2 only; PMI-1 for MPICH. auto: PMIx for programs of Open MPI and PMIx, both for scripts [default:
        /// auto]
        Job "--pmi auto|pmix|pmi2|pmi1" => {
            use PmiChoice::{Auto, Pmi1, Pmi2, Pmix};
            let words = [("auto", Auto), ("pmix", Pmix), ("pmi2", Pmi2), ("pmi1", Pmi1)];
            to.spec.pmi.protocol = given.one_of(&words)?;
        };
        /// Ranks connect to a port of their host for PMI-1 and PMI-2, and inherit no descriptor: for programs behind
        /// wrappers that close descriptors
        Job "-pmi-port" => to.spec.pmi.by_port = true;
        /// Encrypt the messages that the launcher, agents and programs that use ropewalk send from host to host;
        /// messages of MPI libraries are not encrypted
        Job "--encrypt" => to.spec.network.encrypt = true;
        /// Share published names (MPI_Publish_name) with other jobs through a `ropewalk nameserver` there [default
        /// port: 6392]
        Job "-nameserver HOST[:PORT]" => to.name_server.address = Some(given.text()?);
        /// The key of the name server [default: ~/.ropewalk-nameserver.key]
        Job "--nameserver-key FILE" => to.name_server.key = Some(given.path()?);
    }
    "Output and input" {
        /// Put the rank before each line; lines beyond 2 MiB come in pieces, whose cuts are marked with [...] if lines
        /// of other ranks are between them. Colours are taken out unless a terminal shows them
        Job "--label, -l, -prepend-rank, --tag-output" => to.output.prefix = Some(Pattern::label());
        /// Give each rank two terminals for standard output and standard error: programs write each line at once, so
        /// that one that is killed loses none, and in colours
        Job "--tty" => to.spec.has_terminals = true;
        /// Put this before each line: %r is the rank, %h its host, %p the number of that host, %g its process group (0,
        /// or that of spawned processes), and %% a percent sign
        Job "-prepend-pattern PATTERN" => to.output.prefix = Some(given.parsed(PATTERN)?);
        /// Write standard output to files, whose names may have these letters too
        Job "-outfile-pattern, -outfile FILE" => to.output.files[0] = Some(given.parsed(PATTERN)?);
        /// Write standard error to files, likewise
        Job "-errfile-pattern, -errfile FILE" => to.output.files[1] = Some(given.parsed(PATTERN)?);
        /// Show only the output of these ranks, as in 0,4-7 [default: all]
        Job "-output-from RANKS|all|none" => to.output.shown_ranks = ShownRanks::of(&given.text()?)?;
        /// Ranks that read standard input [default: 0; none with --on-failure restart]
        Job "--stdin, -s 0|all|none" => {
            use StdinSource::{Inherit, InheritAll, Null};
            to.stdin = Some(given.one_of(&[("0", Inherit), ("all", InheritAll), ("none", Null)])?);
        };
        /// Say at first which ranks run on which host
        Job "-print-rank-map, --display-map" => to.output.prints_rank_map = true;
        /// Say at the end how each rank ended
        Job "-print-all-exitcodes" => to.output.print_exit_codes = true;
        /// Write each event to standard error, one object a line
        Job "--log json" => to.output.log_json = given.one_of(&[("json", true)])?;
        /// Serve metrics of the job to Prometheus there [default address: 127.0.0.1]
        Job "--metrics [ADDRESS:]PORT" => to.output.metrics = Some(metrics_address(given)?);
        /// Write a page about the job: processes, fences, failures, output, cost of saving
        Job "--report FILE.html" => to.output.report = Some(given.path()?);
        /// Say who started and ended, and who put another value under a key of PMI
        Job "-verbose, -v, -debug" => to.output.verbose = true;
        /// 1 or 0, as -verbose
        Variable "HYDRA_DEBUG" => to.output.verbose |= given.truth()?;
    }
    "Failures and time limits" {
        /// When a rank fails: abort ends the others; continue lets them go on; respawn[=N] starts the rank again, at
        /// most N times each [3], and it finds ROPEWALK_INCARNATION=1, 2..; restart[=N] starts the whole job again, at
        /// most N times, and its ranks find ROPEWALK_ATTEMPT=1, 2.. [default: abort]
        Job "--on-failure abort|continue|respawn|restart" => to.spec.reactions.on_failure = on_failure(given)?;
        /// As --on-failure continue, or --on-failure abort
        Job "-disable-auto-cleanup, -enable-auto-cleanup" => to.spec.reactions.on_failure = match given.enables() {
            true => OnFailure::Abort,
            false => OnFailure::Continue,
        };
        /// With restart: give up after N attempts in a row that reached no new step, in a save or told to an advisor
        /// [default: 5; none with restart=N]
        Job "--restart-limit N" => to.failures.restart_limit = Some(given.number()?);
        /// When a signal stops a rank for longer than --detect: name it, or kill it, which is a failure [default:
        /// notice]
        Job "--stopped notice|fail" =>
            to.spec.reactions.on_stopped = given.one_of(&[("notice", OnStopped::Notice), ("fail", OnStopped::Fail)])?;
        /// How long a host may be silent before it counts as lost [default: 3]
        Job "--detect TIME" => to.spec.time_limits.detect = given.time()?;
        /// How long a host may take to start its agent, login included, before it counts as lost; after --detect it is
        /// named [default: 10 times --detect]
        Job "--start-timeout TIME" =>
            to.spec.time_limits.start_timeout = Some(given.time()?).filter(|time| !time.is_zero());
        /// How long ranks have from the request to end, and their advisor for a last save, until they are killed
        /// [default: 10]
        Job "--grace TIME" => to.spec.time_limits.grace = given.time()?;
        /// End the job after this time, with exit code 124, or 75 if it has saved a checkpoint for that
        Job "--timeout TIME" => to.spec.time_limits.timeout = Some(given.time()?);
        /// As --timeout; no limit if it is empty or negative
        Variable "MPIEXEC_TIMEOUT" => if to.spec.time_limits.timeout.is_none() {
            to.spec.time_limits.timeout = time_limit(given)?;
        };
        /// End the job with exit code 124 if no rank makes progress for so long: no output, no request by PMI, no
        /// bytes read, written or sent over TCP, no step told to the advisor of its checkpoints. Messages through
        /// shared memory, or moved by a network card itself, cannot be seen: take more than the longest part of the
        /// program with nothing else [default: off; 60 from a loss on with --on-failure continue and respawn, as long
        /// as a rank of MPI lives, which would wait for the lost one for ever]
        Job "--stall TIME|off" => to.spec.reactions.stall.limit = stall(given)?;
        /// Processor time is progress too, for programs that compute in silence; ranks of MPI that wait spin, so that
        /// they are not found then
        Job "--stall-counts-cpu" => to.spec.reactions.stall.counts_cpu = true;
        /// Kill a random rank now and then, on average after so long
        Job "--inject-mtbf TIME" => to.failures.injected_after = Some(given.time()?);
        /// The seed of these times and ranks [default: 0]
        Job "--seed N" => to.failures.seed = given.number()?.into();
    }
    "Checkpoints" {
        /// Start each attempt from the newest whole checkpoint in DIR, and say at the end how much saving cost; ranks
        /// find ROPEWALK_CHECKPOINT_DIR, and ROPEWALK_RESTORE if there is one
        Job "--checkpoint DIR" => to.checkpoints.directory = Some(given.path()?);
        /// DIR is each host's own: each host also copies the saves of another, and if a host is lost the job goes on
        /// from the copy, on a new host in its place or on those that are left
        Job "--partner" => to.checkpoints.has_partners = true;
        /// Upload each newest checkpoint there in the background, and fetch it if nothing is left in DIR (if built
        /// with the feature object-store)
        Job "--upload file:///FOLDER" => to.checkpoints.upload = Some(given.text()?);
        /// The program is a solver of OpenFOAM: prepare its case before each attempt, and have it save itself when
        /// that is best; by default in the folder checkpoints of the case
        Job "--adapter openfoam" => to.checkpoints.is_openfoam = given.one_of(&[("openfoam", true)])?;
        /// A first guess of the mean time between failures, which later failures correct; the journal in DIR remembers
        /// it [default: auto, 5 years divided by the hosts]
        Job "--mtbf auto|TIME" => to.checkpoints.mtbf = checkpoints::guess(given)?;
        /// The mean time between failures if it is known: nothing corrects it
        Job "--mtbf-known TIME" => to.checkpoints.mtbf = Some(checkpoints::known(given)?);
        /// With --partner: a first guess of the mean time between losses of a host, by which hosts copy more or less
        /// often [default: auto, 5 years divided by the hosts]
        Job "--host-mtbf auto|TIME" => to.checkpoints.host_mtbf = Some(checkpoints::guess(given)?);
        /// The same if it is known: nothing corrects it
        Job "--host-mtbf-known TIME" => to.checkpoints.host_mtbf = Some(Some(checkpoints::known(given)?));
    }
    "Words of mpirun of Open MPI" {
        /// Set a variable, or pass it on as it is here
        Job "-x NAME[=VALUE]" => to.pass_on(&given.text()?);
        /// Tune Open MPI: set OMPI_MCA_NAME
        Job "--mca, --gmca NAME VALUE" => {
            let name = format!("OMPI_MCA_{}", given.text()?);
            to.spec.environment.variables.push((name.into(), given.next()?));
        };
        /// Nothing to do: ranks may be more than slots, and anybody may run them
        Job "--oversubscribe, --allow-run-as-root, --use-hwthread-cpus, -q, --quiet" => {};
        /// Nothing to do: ranks find Open MPI as this command would
        Job "--prefix DIR" => drop(given.path()?);
        /// One rank on each host, as -ppn 1
        Job "--pernode" => to.per_host(1);
        /// Number the ranks of one host after those of another (slot), one of each host in turn (node), or those of a
        /// host by its parts in turn, which are those of -map-by [default: as they are dealt]
        Job "--rank-by slot|node|core|numa|socket" => to.binding.rank_by(given)?;
        /// Run N ranks on each socket and bind them to it, as --map-by ppr:N:socket; numa and other parts likewise. All
        /// hosts must have as many sockets as this one
        Job "--npersocket N" => {
            let ranks = given.number()?;
            to.per_part(given, ranks, Part::Socket)?;
        };
        /// Say on standard error to which processors each rank is bound
        Job "--report-bindings" => to.spec.placement.tells_bindings = true;
        /// Write the output of rank R to DIR/1/rank.R/stdout and stderr on this machine too, and that of spawned
        /// processes to DIR/2 and so on; with :nocopy behind DIR there only
        Job "--output-filename DIR[:nocopy]" => to.write_to_folder(given)?;
    }
    "About this command, and options that only Hydra needs" {
        /// Show this text
        Job "--help, -h" => to.reading.question = Some(Command::Help);
        /// Show which version this is
        Job "-version, -V" => to.reading.question = Some(Command::Version);
        /// Show which launchers and batch systems there are
        Job "-info" => to.reading.question = Some(Command::Info);
        /// Tune only Hydra; they are passed over, and -verbose says so
        Job "-demux, -topolib NAME" => {
            let value = given.text()?;
            to.pass_over(&format!("{given} {value}"));
        };
        /// Tune only Hydra; they are passed over, and -verbose says so
        Job "-profile" => to.pass_over(&given.to_string());
        /// Refused: this executable must have the same path on all hosts
        Job "-hybrid-hosts" => given.refused("this executable must have the same path on all hosts; --wdir says where \
            programs start")?;
        /// Tune only Hydra; they are passed over, and -verbose says so
        Variable "HYDRA_DEMUX, HYDRA_LAUNCHER_AUTOFORK, HYDRA_LAUNCHER_SSH_ENABLE_WARNINGS, HYDRA_LAUNCHER_SSH_LIMIT, \
            HYDRA_LAUNCHER_SSH_LIMIT_TIME, HYDRA_PROXY_RETRY_COUNT, HYDRA_TOPOLIB, HYDRA_TOPO_DEBUG, HYDRA_USE_DDD, \
            HYDRA_USE_STRACE, HYDRA_USE_VALGRIND" => to.pass_over(&given.to_string());
        /// Limit the ports of MPICH's own connections, and those of nobody else
        Variable "MPIEXEC_PORT_RANGE, MPIEXEC_PORTRANGE, MPIR_CVAR_CH3_PORT_RANGE" => to.output.notices.push(format!(
            "{given} limits the ports of MPICH's own connections only; the launcher and its agents listen where the \
             system lets them"
        ));
    }
}

/// The words that a wrong pattern is told to be.
const PATTERN: &str = "text with %r, %h, %p, %g or %%";

/// All options and variables.
pub(super) fn rows() -> impl Iterator<Item = &'static Row> {
    GROUPS.iter().flat_map(|group| group.rows)
}

/// The option that is called so without its dashes, and its spelling in the table.
pub(super) fn find(name: &str) -> Option<(&'static Row, &'static str)> {
    let options = rows().filter(|row| row.is_option());
    let mut names = options.flat_map(|row| row.names().map(move |name| (row, name)));
    names.find(|(_, known)| known.trim_start_matches('-') == name)
}

impl Row {
    pub(super) fn is_option(&self) -> bool {
        !matches!(self.apply, Apply::Variable(_))
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> + use<> {
        let names = self.usage.split(", ");
        names.map(|name| name.split_once(' ').map_or(name, |(name, _)| name))
    }

    /// Says if this is one of these rows, which are called by their first names.
    pub(super) fn is_one_of(&self, known: &[&str]) -> bool {
        self.names().next().is_some_and(|first| known.contains(&first))
    }

    pub(super) fn value(&self) -> Option<&'static str> {
        let (_, last) = self.usage.rsplit_once(", ").unwrap_or(("", self.usage));
        last.split_once(' ').map(|(_, value)| value)
    }

    /// The words that the value is one of.
    pub(super) fn choices(&self) -> Vec<&'static str> {
        let value = self.value().filter(|value| !value.contains(char::is_uppercase));
        value.map_or(Vec::new(), |value| value.split('|').collect())
    }
}

#[cfg(test)]
mod tests;
