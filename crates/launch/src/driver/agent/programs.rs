//! The programs of a process group, and the environments of the ranks that run them.

use std::{
    collections::BTreeMap,
    ffi::{CString, OsStr, OsString},
    io,
    os::unix::ffi::OsStringExt,
    path::PathBuf,
};

use ropewalk_launch_core::{
    group_plan::{GroupPlan, GroupProgram},
    mpi::{
        self, Flavour,
        service::{Kind, PmiChoice, Service},
    },
    protocol::{Plan, StartError, StartErrorKind},
};
use ropewalk_names::HostId;
use rustix::{io::Errno, thread::sched_getaffinity};

use crate::driver::{
    mpi_programs::{self, MpiHost},
    process::Program,
};

/// A program of the job, and the environment of its ranks but for the variables of each.
pub(super) struct Started {
    pub(super) program: Program,
    pub(super) environment: Vec<CString>,
    /// The files that libpmix may be in, if PMIx has a part in serving it.
    pub(super) pmix: Option<Vec<PathBuf>>,
    /// It is served by PMIx only.
    pub(super) needs_pmix: bool,
    /// It is a script, or runs others: nobody can say what it will load.
    pub(super) is_open: bool,
    /// The sentence about a rank of it that ended well and never asked for the others, if that is odd.
    pub(super) silent_end: Option<String>,
    pub(super) suspicion: Suspicion,
}

/// If ranks of a program were seen to be jobs of one rank while they ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Suspicion {
    #[default]
    None,
    /// One look has found such a rank.
    Found,
    /// The user was told.
    Told,
}

/// The programs of a process group, looked for on this host.
pub(super) fn programs(plan: &Plan, group: &GroupPlan, host: HostId) -> Vec<Result<Started, StartError>> {
    let own = plan.rank_variables(group, host, group.first, 0, 0);
    let own: Vec<&OsStr> = own.iter().map(|(name, _)| OsStr::new(name)).collect();
    let mut set = plan
        .environment
        .inheritable
        .iter()
        .chain(&plan.environment.common.variables);
    let named = set.rfind(|(name, _)| name == mpi::LIBRARY_VARIABLE);
    let ranks = plan
        .hosts
        .get(host.0 as usize)
        .map_or(0, |host| host.ranks().count());
    let processors = sched_getaffinity(None).map_or(usize::MAX, |set| set.count() as usize);
    let mpi_host = MpiHost::new(named.map(|(_, folder)| folder.as_os_str()));
    let mut others = Vec::new();
    let prepare = |GroupProgram { segment, path: first }: &GroupProgram| {
        // What stands last counts.
        let environment: BTreeMap<_, _> = plan.program_variables(segment).collect();
        let path = environment
            .get(&OsString::from("PATH"))
            .map(|path| path.as_os_str());
        let path = path.unwrap_or(OsStr::new("/bin:/usr/bin"));
        let path = match first {
            Some(first) => [first, path].join(OsStr::new(":")),
            None => path.to_owned(),
        };
        let program = Program::new(segment, &path).map_err(|error| start_error(&error))?;
        let mut service = Service::Pmi;
        let mut is_open = false;
        let mut found = Flavour::None;
        let mut libraries = Vec::new();
        if plan.pmi.singleton.is_none()
            && let Some(file) = program.file()
        {
            let kind = mpi_programs::kind_of(&file);
            is_open = kind == Kind::Open;
            found = mpi_host.flavour(&file, &environment);
            let may_need = plan.pmi.protocol == PmiChoice::Pmix || found.speaks_pmix() || kind == Kind::Open;
            if may_need && matches!(plan.pmi.protocol, PmiChoice::Auto | PmiChoice::Pmix) {
                libraries = mpi_host.pmix_libraries(&file, &found, &environment);
            }
            let means = mpi_host.means(&found, !libraries.is_empty());
            let decided = mpi::service::service(plan.pmi.protocol, kind, &found, means);
            let refused = decided.clone().err().or_else(|| found.refusal_beside(&others));
            // One rank alone is what such a program is without us, too.
            if let (true, Some(refusal)) = (group.size > 1, refused) {
                let (kind, reason) = (StartErrorKind::NotExecutable, refusal.to_string());
                return Err(StartError { kind, reason });
            }
            service = decided.unwrap_or(Service::Pmi);
            others.push(found.clone());
        }
        let inherited = environment
            .iter()
            .filter(|(name, _)| !own.contains(&name.as_os_str()));
        let inherited = inherited.map(|(name, value)| variable(name, value));
        // Open MPI's ranks spin while they wait; where there are more of them than processors, each would keep the one
        // that it waits for from running: a solver took 60 s instead of 3. Its own launcher sets this too.
        let yields = OsString::from("OMPI_MCA_mpi_yield_when_idle");
        let is_crowded = ranks > processors;
        let yields =
            (is_crowded && !environment.contains_key(&yields)).then(|| variable(&yields, OsStr::new("1")));
        let flux = mpi_host.library(group.size).map(|library| {
            let job = mpi::open_mpi_job(plan.job);
            (job, library.to_string_lossy().into_owned())
        });
        let of_service = mpi::service::variables(plan.pmi.protocol, service, flux);
        let of_service = of_service
            .into_iter()
            .filter(|(name, _)| !environment.contains_key(&OsString::from(name)))
            .map(|(name, value)| variable(OsStr::new(name), OsStr::new(&value)));
        let environment = inherited
            .chain(yields)
            .chain(of_service)
            .collect::<Result<_, _>>();
        let environment = environment.map_err(|error| start_error(&error))?;
        Ok(Started {
            program,
            environment,
            pmix: service.has_pmix().then_some(libraries),
            needs_pmix: service == Service::Pmix,
            is_open,
            suspicion: Suspicion::default(),
            silent_end: (group.size > 1)
                .then(|| mpi::service::silent_end(&found))
                .flatten(),
        })
    };
    group.programs.iter().map(prepare).collect()
}

/// NAME=VALUE.
pub(super) fn variable(name: &OsStr, value: &OsStr) -> io::Result<CString> {
    let mut text = name.to_owned();
    text.push("=");
    text.push(value);
    Ok(CString::new(text.into_vec())?)
}

/// A program that cannot be executed, and why.
pub(super) fn start_error(error: &io::Error) -> StartError {
    use io::ErrorKind::{NotADirectory, NotFound, OutOfMemory, QuotaExceeded, WouldBlock};
    let kind = match (error.kind(), error.raw_os_error().map(Errno::from_raw_os_error)) {
        (NotFound | NotADirectory, _) => StartErrorKind::NotFound,
        (OutOfMemory | QuotaExceeded | WouldBlock, _) => StartErrorKind::System,
        (_, Some(Errno::MFILE | Errno::NFILE | Errno::SRCH)) => StartErrorKind::System,
        _ => StartErrorKind::NotExecutable,
    };
    let reason = error.to_string();
    StartError { kind, reason }
}
