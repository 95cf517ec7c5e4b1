//! Names that several jobs share: the root asks for them elsewhere.

use super::{Answer, NameQuestionId, Question, Server};

impl Server {
    /// From now on names are published and looked up at a name server that several jobs share: see
    /// [`Action::AskNames`](super::Action::AskNames). It concerns the root only, which is told before any
    /// process speaks.
    pub fn share_names(&mut self) {
        self.shares_names = true;
    }

    /// Takes the answer to [`Action::AskNames`](super::Action::AskNames): [`Answer::Done`], [`Answer::Value`]
    /// or [`Answer::Failed`].
    pub fn handle_name_answer(&mut self, id: NameQuestionId, answer: Answer) {
        self.take_answer(id.0, answer);
        self.resume();
    }
}

impl Question {
    pub(super) fn is_about_names(&self) -> bool {
        matches!(
            self,
            Self::Lookup { .. } | Self::Publish { .. } | Self::Unpublish { .. }
        )
    }
}
