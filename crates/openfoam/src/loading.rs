//! Detects that a solver has not loaded the function object: OpenFOAM goes on without what it cannot load.

/// Follows what rank 0 of a job prints, over all its starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loading {
    state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Nothing is expected: it is too early, or all is known, or the output is not a solver's whole one.
    #[default]
    Waiting,
    /// The solver reads its case; the function object will speak before the first step.
    Reading,
}

impl Loading {
    /// Takes the next line. Whether the solver computes without the function object from here on; said once in a start.
    pub fn is_missing_at(&mut self, line: &[u8]) -> bool {
        let (next, is_missing) = match self.state {
            _ if line.starts_with(BEGINS) => (State::Reading, false),
            State::Reading if line.starts_with(LOADED) => (State::Waiting, false),
            State::Reading if line.starts_with(STEP) => (State::Waiting, true),
            state => (state, false),
        };
        self.state = next;
        is_missing
    }
}

/// The first output of every solver that concerns its case.
const BEGINS: &[u8] = b"Create time";

/// The beginning of the line that the function object prints when it is there.
const LOADED: &[u8] = b"ropewalk: saves to ";

/// The beginning of a step.
const STEP: &[u8] = b"Time = ";

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(lines: &[&str]) -> usize {
        let mut loading = Loading::default();
        let missing = lines.iter().filter(|line| loading.is_missing_at(line.as_bytes()));
        missing.count()
    }

    /// A solver that computes in silence is found, once in each start; one whose output is cut down is left alone.
    #[test]
    fn silence_is_heard() {
        let loaded = [
            "Create time\n",
            "ropewalk: saves to /case/checkpoints\n",
            "Time = 1\n",
            "Time = 2\n",
        ];
        let silent = [
            "Create time\n",
            "Create mesh for time = 0\n",
            "Time = 1\n",
            "Time = 2\n",
        ];
        assert_eq!(missing(&loaded), 0);
        assert_eq!(missing(&silent), 1);
        assert_eq!(missing(&[loaded, silent].concat()), 1);
        assert_eq!(missing(&[silent, silent].concat()), 2);
        assert_eq!(missing(&["Time = 1\n", "Time = 2\n"]), 0);
    }
}
