//! What an engine does as the origin of calls.

use std::time::Duration;

use bytes::Bytes;
use ropewalk_fabric::Address;

use crate::{
    Call, CallError, Engine, Procedure, call::Pending, engine::Waiting, procedure::procedure_id,
    wire::RequestHeader,
};

impl Engine {
    /// Calls a procedure of the engine at `target`, which may be this one. The call ends by its time-out at
    /// the latest, and at once if the target dies.
    ///
    /// # Errors
    /// If it cannot even be sent; see [`CallError::Submit`].
    pub fn call<P: Procedure>(
        &mut self,
        target: &Address,
        input: &P::Input,
        timeout: Duration,
    ) -> Result<Call<P::Output>, CallError> {
        let procedure = P::NAME;
        let failed = |source| CallError::Submit { procedure, source };
        let request = Self::encode_request::<P>(input, Some(timeout))?;
        let tag = self.next_call;
        self.next_call = self.next_call.wrapping_add(1);
        // The answer cannot be early: it is waited for before the request is sent.
        let operation = self
            .endpoint
            .receive_expected(target, tag, timeout)
            .map_err(failed)?;
        if let Err(error) = self.endpoint.send_unexpected(target, tag, request) {
            self.endpoint.cancel(operation);
            return Err(failed(error));
        }
        let (promise, pending) = Pending::new(operation, &self.abandoned);
        self.waiting.insert(operation, Waiting::Call(procedure, promise));
        Ok(Call::new(pending, procedure, target.clone()))
    }

    /// Calls a procedure of the engine at `target` without waiting for an answer. Calls and notifications
    /// from one engine to another are handled in the order they were made.
    ///
    /// # Errors
    /// If it cannot be sent; see [`CallError::Submit`]. That it was lost with the target is seen in
    /// [`poll_lost_peer`](Self::poll_lost_peer) only.
    pub fn notify<P: Procedure>(&mut self, target: &Address, input: &P::Input) -> Result<(), CallError> {
        let procedure = P::NAME;
        let request = Self::encode_request::<P>(input, None)?;
        let sent = self.endpoint.send_unexpected(target, 0, request);
        sent.map_err(|source| CallError::Submit { procedure, source })
    }

    fn encode_request<P: Procedure>(input: &P::Input, timeout: Option<Duration>) -> Result<Bytes, CallError> {
        let header = RequestHeader {
            procedure: const { procedure_id(P::NAME) },
            timeout,
        };
        header
            .encode(input)
            .map_err(|source| CallError::InputUnencodable {
                procedure: P::NAME,
                source,
            })
    }
}
