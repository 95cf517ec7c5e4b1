//! The hosts that a host file names, or that a batch system gives to the job.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use ropewalk_launch::hosts::{HostSlots, parse_host_file, slurm_hosts};

use super::Surroundings;

/// Who gives hosts to jobs: Hydra's resource management kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResourceManager {
    Cobalt,
    LoadLeveler,
    Lsf,
    Pbs,
    Sge,
    Slurm,
    /// The user, who names them.
    User,
}

impl ResourceManager {
    /// All by their names, in the order in which they are looked for.
    pub(super) const NAMED: [(&str, Self); 7] = [
        ("slurm", Self::Slurm),
        ("lsf", Self::Lsf),
        ("sge", Self::Sge),
        ("pbs", Self::Pbs),
        ("ll", Self::LoadLeveler),
        ("cobalt", Self::Cobalt),
        ("user", Self::User),
    ];

    /// The launcher that goes with it if nobody wants another.
    pub(super) fn launcher(self) -> Option<&'static str> {
        match self {
            Self::Lsf => Some("lsf"),
            Self::Sge => Some("sge"),
            Self::Slurm => Some("slurm"),
            Self::Cobalt | Self::LoadLeveler | Self::Pbs | Self::User => None,
        }
    }

    /// The variables in which it says which hosts these are; the first that is set counts.
    fn variables(self) -> &'static [&'static str] {
        match self {
            Self::Cobalt => &["COBALT_NODEFILE"],
            Self::LoadLeveler => &["LOADL_HOSTFILE"],
            Self::Lsf => &["LSB_MCPU_HOSTS"],
            Self::Pbs => &["PBS_NODEFILE"],
            Self::Sge => &["PE_HOSTFILE"],
            Self::Slurm => &["SLURM_JOB_NODELIST", "SLURM_NODELIST"],
            Self::User => &[],
        }
    }

    fn hosts(self, around: &Surroundings<'_>) -> anyhow::Result<Option<Vec<HostSlots>>> {
        let text = |name: &str| (around.variable)(name).and_then(|value| value.into_string().ok());
        let Some((name, value)) = self.variables().iter().find_map(|name| Some((name, text(name)?))) else {
            return Ok(None);
        };
        let hosts = match self {
            Self::Slurm => slurm_hosts(&value, text("SLURM_TASKS_PER_NODE").as_deref())
                .context("cannot read what Slurm says about its nodes"),
            Self::Lsf => counted(value.split_ascii_whitespace()),
            Self::Sge => read(&value, around).and_then(|text| {
                let lines = text.lines().map(|line| line.split_ascii_whitespace().take(2));
                counted(lines.flatten())
            }),
            Self::Cobalt | Self::LoadLeveler | Self::Pbs | Self::User => {
                read(&value, around).and_then(|text| repeated(text.split_ascii_whitespace()))
            }
        };
        hosts.with_context(|| format!("the variable {name}")).map(Some)
    }
}

/// The hosts of the batch system that there is, or of the wanted one, and which that is.
pub(super) fn find(
    wanted: Option<ResourceManager>,
    around: &Surroundings<'_>,
) -> anyhow::Result<Option<(ResourceManager, Vec<HostSlots>)>> {
    match wanted {
        Some(ResourceManager::User) => Ok(None),
        Some(manager) => match manager.hosts(around)? {
            Some(hosts) => Ok(Some((manager, hosts))),
            None => bail!(
                "option -rmk names a batch system that gave this command no hosts: {} is not set",
                manager.variables().join(" or ")
            ),
        },
        None => {
            for (_, manager) in ResourceManager::NAMED {
                if let Some(hosts) = manager.hosts(around)? {
                    return Ok(Some((manager, hosts)));
                }
            }
            Ok(None)
        }
    }
}

/// The hosts of a host file.
pub(super) fn read_hosts(path: &Path, around: &Surroundings<'_>) -> anyhow::Result<Vec<HostSlots>> {
    // What Hydra takes for this host.
    if path == Path::new("HYDRA_USE_LOCALHOST") {
        return Ok(vec![HostSlots::new("localhost", 1)?]);
    }
    let bytes =
        (around.read)(path).with_context(|| format!("cannot read the host file {}", path.display()))?;
    let text = String::from_utf8(bytes).with_context(|| format!("{} is no text", path.display()))?;
    let hosts =
        parse_host_file(&text).with_context(|| format!("cannot use the host file {}", path.display()))?;
    if hosts.is_empty() {
        bail!(
            "the host file {} names no host; localhost stands for this one",
            path.display()
        );
    }
    Ok(hosts)
}

fn read(path: &str, around: &Surroundings<'_>) -> anyhow::Result<String> {
    let path = PathBuf::from(path);
    let bytes = (around.read)(&path).with_context(|| format!("cannot read {}", path.display()))?;
    String::from_utf8(bytes).with_context(|| format!("{} is no text", path.display()))
}

/// Names with their slots behind them.
fn counted<'a>(mut words: impl Iterator<Item = &'a str>) -> anyhow::Result<Vec<HostSlots>> {
    let mut hosts = Vec::new();
    while let Some(name) = words.next() {
        let slots = words
            .next()
            .and_then(|slots| slots.parse().ok())
            .filter(|&slots| slots > 0);
        let slots = slots.with_context(|| format!("no number of slots behind {name:?}"))?;
        hosts.push(HostSlots::new(name, slots)?);
    }
    Ok(hosts)
}

/// Names, each as often as it has slots.
fn repeated<'a>(names: impl Iterator<Item = &'a str>) -> anyhow::Result<Vec<HostSlots>> {
    let mut hosts: Vec<HostSlots> = Vec::new();
    for name in names {
        match hosts.last_mut() {
            Some(last) if last.name() == name => last.slots = last.slots.saturating_add(1),
            _ => hosts.push(HostSlots::new(name, 1)?),
        }
    }
    Ok(hosts)
}
