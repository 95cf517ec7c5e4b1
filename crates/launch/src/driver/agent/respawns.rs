//! The remains of a rank's process when the rank gets another.

use ropewalk_launch_core::protocol::Report;

use super::{
    Agent,
    poller::Channel,
    rank_io::{Output, Reading},
};

/// How much is read of what an earlier process wrote: pipes hold no more, unless somebody goes on writing.
const READS_MAX: usize = 64;

impl Agent {
    /// Takes what the process before had written last.
    pub(super) fn retire(&mut self, index: usize) {
        let Some(io) = self.ranks.ios.get_mut(index).and_then(Option::take) else {
            return;
        };
        let rank = io.rank;
        for (output, channel) in io.outputs.into_iter().zip(Channel::OUTPUTS) {
            let Some(mut output) = output else {
                continue;
            };
            for _ in 0..READS_MAX {
                match output.read(&mut self.buffer) {
                    Reading::Some(Some(lines)) => {
                        let stream = channel.stream();
                        self.branch.report(Report::Output { rank, stream, lines });
                    }
                    Reading::Some(None) => {}
                    Reading::Drained | Reading::Over => break,
                }
            }
            let Output { lines, .. } = output;
            if let Some(lines) = lines.finish() {
                let stream = channel.stream();
                self.branch.report(Report::Output { rank, stream, lines });
            }
        }
    }
}
