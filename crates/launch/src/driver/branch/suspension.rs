//! A launcher that its user has suspended, as with ^Z, and that is not to be taken for dead meanwhile.

use super::Branch;

impl Branch {
    /// The launcher says nothing from now on, or does again. That it is killed is seen all the same, by the end of its
    /// connection and of the life line.
    pub(in crate::driver) fn set_launcher_suspended(&mut self, is_suspended: bool) {
        let Some(launcher) = self.above.launcher() else {
            return;
        };
        match is_suspended {
            true => self.endpoint.unwatch(launcher),
            // One that cannot be watched any more is gone, which is told by itself.
            false => drop(self.endpoint.watch(launcher)),
        }
    }
}
