//! What the programs of a simulated job say.

use std::collections::VecDeque;

use super::World;
use crate::group_plan::GroupPlan;

impl World {
    /// A program, if the job has none of its own: it may spawn, tells its like something and hears it of them, twice, and finalizes.
    pub(super) fn script(&mut self, group: &GroupPlan, place: u32) -> VecDeque<Vec<u8>> {
        if let Some(script) = self.script {
            return script(&self.plan.kvsname(group.id), place);
        }
        let depth = group.id;
        let mut script = VecDeque::from([b"cmd=init pmi_version=1 pmi_subversion=1\n".to_vec()]);
        if depth < 4 && self.random.below(3) == 0 {
            let program = ["other", "missing"][usize::from(self.random.below(3) == 0)];
            let count = 1 + self.random.below(4);
            let second = "mcmd=spawn\nnprocs=1\nexecname=other\ntotspawns=2\nspawnssofar=2\nargcnt=0\n\
                          preput_num=0\ninfo_num=0\nendcmd\n";
            let first = format!(
                "mcmd=spawn\nnprocs={count}\nexecname={program}\ntotspawns=2\nspawnssofar=1\nargcnt=0\n\
                 preput_num=0\ninfo_num=0\nendcmd\n{second}"
            );
            script.push_back(first.into_bytes());
        }
        let kvsname = self.plan.kvsname(group.id);
        for round in 0..2 {
            let key = format!("key={place}.{round} value={place}");
            script.push_back(format!("cmd=put kvsname={kvsname} {key}\n").into_bytes());
            script.push_back(b"cmd=barrier_in\n".to_vec());
            for other in 0..group.size {
                let key = format!("key={other}.{round}");
                script.push_back(format!("cmd=get kvsname={kvsname} {key}\n").into_bytes());
            }
        }
        script.push_back(b"cmd=finalize\n".to_vec());
        script
    }
}

/// Whose key a line asks for, by its rank in its group.
pub(super) fn wanted(line: &[u8]) -> Option<u32> {
    let line = std::str::from_utf8(line).ok()?;
    let key = line.strip_prefix("cmd=get ")?.split_once("key=")?.1;
    key.split_once('.')?.0.parse().ok()
}
