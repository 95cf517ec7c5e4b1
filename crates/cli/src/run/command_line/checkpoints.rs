//! The checkpoints of a job, and their supervisor.

use std::path::PathBuf;

use anyhow::bail;
use ropewalk_checkpoint::Mtbf;
use ropewalk_launch::{JobSpec, hosts::HostSlots};

use super::given::Given;
use crate::{
    run::{checkpoints::CheckpointOptions, openfoam},
    times::{TIMES, seconds},
};

/// The options about checkpoints.
#[derive(Default)]
pub(super) struct Checkpointing {
    pub(super) directory: Option<PathBuf>,
    pub(super) has_partners: bool,
    pub(super) upload: Option<String>,
    pub(super) is_openfoam: bool,
    pub(super) mtbf: Option<Mtbf>,
    /// With `Some(None)` somebody said `auto`.
    pub(super) host_mtbf: Option<Option<Mtbf>>,
}

impl Checkpointing {
    pub(super) fn finish(self, spec: &JobSpec) -> anyhow::Result<Option<CheckpointOptions>> {
        let mut directory = self.directory;
        if self.is_openfoam && directory.is_none() {
            directory = Some(openfoam::folder(spec)?.join("checkpoints"));
        }
        if self.has_partners {
            if spec.placement.rank_map.is_some() {
                bail!(
                    "option -rankmap does not go with --partner: ranks of a host that is lost go to others"
                );
            }
            can_have_partners(spec, directory.is_some(), self.is_openfoam, self.upload.is_some())?;
        } else if self.host_mtbf.is_some() {
            bail!(
                "option --host-mtbf wants --partner: without copies the loss of a host is one failure of many"
            );
        }
        match directory {
            Some(directory) => Ok(Some(CheckpointOptions {
                directory,
                mtbf: self.mtbf,
                host_mtbf: self.host_mtbf.flatten(),
                has_partners: self.has_partners,
                upload: self.upload,
            })),
            None if self.upload.is_some() => bail!("option --upload wants --checkpoint DIR"),
            None if self.mtbf.is_some() => bail!("option --mtbf wants --checkpoint DIR"),
            None => Ok(None),
        }
    }
}

/// Refuses copies on other hosts where there can be none.
fn can_have_partners(
    spec: &JobSpec,
    has_directory: bool,
    is_openfoam: bool,
    is_uploaded: bool,
) -> anyhow::Result<()> {
    if is_openfoam {
        bail!(
            "--partner cannot be used with --adapter openfoam: this host prepares the case before each start, for \
             which all hosts have to see its folder, and then they see the checkpoints in it too"
        );
    }
    if is_uploaded {
        bail!(
            "--partner cannot be used with --upload: what is uploaded is read here, where only some ranks' parts lie; \
             let DIR be a folder that all hosts see, and leave out --partner"
        );
    }
    if !has_directory {
        bail!("option --partner wants --checkpoint DIR");
    }
    let others = spec.hosts.iter().skip(1);
    let is_one = others
        .into_iter()
        .all(|host| Some(host.name()) == spec.hosts.first().map(HostSlots::name));
    if is_one {
        bail!("option --partner wants two hosts at least, of which each copies what the other saves");
    }
    Ok(())
}

/// A mean time that is guessed; `None` for `auto`.
pub(super) fn guess(given: &mut Given<'_>) -> anyhow::Result<Option<Mtbf>> {
    if given.words.front().is_some_and(|word| word == "auto") {
        return given.next().map(|_| None);
    }
    mean_time(given).map(|guess| Some(Mtbf::Learned(guess)))
}

/// A mean time that is known.
pub(super) fn known(given: &mut Given<'_>) -> anyhow::Result<Mtbf> {
    mean_time(given).map(Mtbf::Known)
}

fn mean_time(given: &mut Given<'_>) -> anyhow::Result<f64> {
    let text = given.text()?;
    match seconds(&text) {
        Ok(mtbf) if mtbf > 0.0 => Ok(mtbf),
        _ => Err(given.wants(&format!("{TIMES}, more than 0"), &text)),
    }
}
