//! The folder of `--output-filename`: a file for each rank and stream, named as Open MPI names them.

use std::path::{Path, PathBuf};

use ropewalk_launch::{OutputStream, RankPlace};
use ropewalk_names::Rank;

use super::command_line::OutputFolder;

/// The files of all ranks.
pub(super) struct RankFiles {
    path: PathBuf,
    /// The output goes where it would go without the folder too.
    pub(super) is_shown: bool,
    /// How many digits a rank has at least: as many as the last of the job.
    digits: usize,
}

impl RankFiles {
    pub(super) fn new(folder: OutputFolder, ranks: u32) -> Self {
        let OutputFolder { path, is_shown } = folder;
        Self {
            path,
            is_shown,
            digits: ranks.saturating_sub(1).to_string().len(),
        }
    }

    /// The file of one stream of a rank.
    pub(super) fn file(&self, rank: Rank, place: &RankPlace<'_>, stream: OutputStream) -> PathBuf {
        let name = match stream {
            OutputStream::Stderr => "stderr",
            OutputStream::Stdout => "stdout",
        };
        // Open MPI counts jobs from 1 on, each spawn as one.
        let job = (place.group + 1).to_string();
        let rank = format!("rank.{:0digits$}", rank.0, digits = self.digits);
        self.path.join(Path::new(&job)).join(rank).join(name)
    }
}

#[cfg(test)]
mod tests {
    use ropewalk_names::HostId;

    use super::*;

    /// Files lie where Open MPI 4.1 puts them.
    #[test]
    fn files_are_named() {
        let file = |ranks, group, rank, stream| {
            let path = "out".into();
            let files = RankFiles::new(OutputFolder { path, is_shown: true }, ranks);
            let place = RankPlace {
                host: "node",
                host_number: HostId(0),
                group,
            };
            files.file(Rank(rank), &place, stream)
        };
        let (stdout, stderr) = (OutputStream::Stdout, OutputStream::Stderr);
        assert_eq!(file(10, 0, 9, stdout), Path::new("out/1/rank.9/stdout"));
        assert_eq!(file(11, 0, 9, stderr), Path::new("out/1/rank.09/stderr"));
        assert_eq!(file(2, 1, 12, stdout), Path::new("out/2/rank.12/stdout"));
    }
}
