//! The methods of an engine by which its owner calls, serves and moves.

use std::{future::poll_fn, ops::Range, pin::pin, task::Poll, time::Duration};

use bytes::Bytes;
use ropewalk_fabric::{Address, Buffer, RegionHandle, SubmitError, ToPeer, Withdrawn};
use tracing::Instrument;

use super::{Batch, segments};
use crate::{
    BulkHandle, BulkHandleError, Call, CallContext, CallError, CallOptions, Caller, Engine, Fault, Handle,
    Hedge, HedgedCall, Pipeline, PipelinedChunks, Procedure, PulledChunks, PushedChunks, Responder, Transfer,
    TransferError, input::Input, reply::Reply, responder::ReplyTo,
};

impl Engine {
    /// The most asynchronous handlers that are in progress at once; above it calls are answered with a
    /// [`Fault`].
    pub const TASKS_MAX: usize = 1 << 16;

    /// Calls a procedure of the engine at `target`, which may be this one. The call ends by its time-out at
    /// the latest, and at once if the target dies, but for retries that its options allow.
    ///
    /// # Errors
    /// If it cannot even be sent; see [`CallError::Submit`].
    pub fn call<P: Procedure>(
        &mut self,
        target: impl ToPeer,
        input: &P::Input,
        options: impl Into<CallOptions>,
    ) -> Result<Call<P::Output>, CallError> {
        let result = self
            .calls
            .call::<P>(&mut self.ground, target, input, None, &options.into());
        result.inspect_err(|error| self.ground.metrics.calls.failures.record(error))
    }

    /// As [`call`](Self::call), with `data` behind the input, for a procedure that is served by
    /// [`serve_with_data`](Self::serve_with_data). Over a network long data is sent from where it is.
    ///
    /// # Errors
    /// As the call.
    pub fn call_with_data<P: Procedure>(
        &mut self,
        target: impl ToPeer,
        input: &P::Input,
        data: &Bytes,
        timeout: Duration,
    ) -> Result<Call<P::Output>, CallError> {
        let options = timeout.into();
        let result = self
            .calls
            .call::<P>(&mut self.ground, target, input, Some(data), &options);
        result.inspect_err(|error| self.ground.metrics.calls.failures.record(error))
    }

    /// As [`Handle::call_hedged`]: the engine has to be driven meanwhile.
    pub fn call_hedged<P>(
        &mut self,
        targets: &[Address],
        input: P::Input,
        hedge: Hedge,
        timeout: Duration,
    ) -> HedgedCall<P>
    where
        P: Procedure<Input: Send + Sync + 'static, Output: Send + 'static> + 'static,
    {
        self.handle().call_hedged(targets, input, hedge, timeout)
    }

    /// As [`call`](Self::call), and drives the engine until it has ended.
    ///
    /// # Errors
    /// As the call.
    ///
    /// # Panics
    /// If it is called by a handler.
    pub fn call_blocking<P: Procedure>(
        &mut self,
        target: impl ToPeer,
        input: &P::Input,
        options: impl Into<CallOptions>,
    ) -> Result<P::Output, CallError> {
        let mut call = self.call::<P>(target, input, options)?;
        loop {
            self.wait(Duration::from_secs(1));
            if let Some(result) = call.try_take() {
                return result;
            }
        }
    }

    /// Calls a procedure of the engine at `target` without waiting for an answer. Calls and notifications
    /// from one engine to another are handled in the order they were made.
    ///
    /// # Errors
    /// If it cannot be sent; see [`CallError::Submit`]. That it was lost with the target is seen in
    /// [`poll_lost_peer`](Self::poll_lost_peer) only.
    pub fn notify<P: Procedure>(&mut self, target: impl ToPeer, input: &P::Input) -> Result<(), CallError> {
        self.calls.notify::<P>(&mut self.ground, target, input)
    }

    /// Begins a batch of calls to the engine at `target`.
    ///
    /// # Errors
    /// If the address is unusable.
    pub fn batch(&mut self, target: impl ToPeer) -> Result<Batch<'_>, SubmitError> {
        let peer = target.to_peer(&mut self.ground.endpoint)?;
        Ok(Batch::new(&mut self.calls, &mut self.ground, peer))
    }

    /// Serves a procedure; a handler that it had before is replaced. The handler runs inside
    /// [`progress`](Self::progress), so it should be short; see [`serve_later`](Self::serve_later) for
    /// others. What comes by [`notify`](Self::notify) is handled the same, and its output dropped.
    ///
    /// # Panics
    /// If another procedure's name has the same hash: one of the two needs another name.
    pub fn serve<P: Procedure>(
        &mut self,
        handler: impl FnMut(&Caller, P::Input) -> Result<P::Output, Fault> + Send + 'static,
    ) {
        self.serving.serve::<P>(false, handler);
    }

    /// As [`serve`](Self::serve), for calls whose callers go on without the answer: over a network it waits for up to
    /// 2 ms, and goes with the next message to the caller. Where two ends talk to each other that spares half of all
    /// messages.
    ///
    /// # Panics
    /// As for [`serve`](Self::serve).
    pub fn serve_with_delayed_answers<P: Procedure>(
        &mut self,
        handler: impl FnMut(&Caller, P::Input) -> Result<P::Output, Fault> + Send + 'static,
    ) {
        self.serving.serve::<P>(true, handler);
    }

    /// Serves a procedure whose answer may be given after the handler has returned, by the [`Responder`]. The
    /// handler may start calls and transfers on the engine, but must not drive it.
    ///
    /// # Panics
    /// As for [`serve`](Self::serve).
    pub fn serve_later<P: Procedure>(
        &mut self,
        mut handler: impl FnMut(&mut Engine, Caller, P::Input, Responder<P::Output>) + Send + 'static,
    ) {
        self.serve_with_data::<P>(move |engine, caller, input, _, responder| {
            handler(engine, caller, input, responder);
        });
    }

    /// As [`serve_later`](Self::serve_later), for calls [with data](Self::call_with_data). The handler gets it in the
    /// memory in which it arrived. It is empty for other calls.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use bytes::Bytes;
    /// # use ropewalk_rpc::{Engine, EndpointOptions, Identity, Procedure};
    /// struct Count;
    ///
    /// impl Procedure for Count {
    ///     const NAME: &'static str = "example.count";
    ///     type Input = u8;
    ///     type Output = usize;
    /// }
    ///
    /// # fn count(engine: &mut Engine) -> Result<(), Box<dyn std::error::Error>> {
    /// engine.serve_with_data::<Count>(|_, _, wanted, data, responder| {
    ///     responder.answer(Ok(data.iter().filter(|byte| **byte == wanted).count()));
    /// });
    /// let address = engine.address().clone();
    /// let data = Bytes::from(vec![7; 10_000]);
    /// let mut call = engine.call_with_data::<Count>(&address, &7, &data, Duration::from_secs(1))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// As for [`serve`](Self::serve).
    pub fn serve_with_data<P: Procedure>(
        &mut self,
        mut handler: impl FnMut(&mut Engine, Caller, P::Input, Bytes, Responder<P::Output>) + Send + 'static,
    ) {
        let handle = move |engine: &mut Engine, caller: Caller, reply: Option<ReplyTo>, input: Input<'_>| {
            let Engine { serving, ground, .. } = engine;
            let Some((input, data)) = input.decode() else {
                if let Some(reply) = reply {
                    let body = Reply::InputMalformed.encode(reply.handling());
                    serving.reply(ground, reply, body);
                }
                return;
            };
            if let Some(responder) = serving.responder(ground, reply) {
                handler(engine, caller, input, data, responder);
            }
        };
        self.serving.serve_later::<P>(Box::new(handle));
    }

    /// Serves a procedure by a future, which is polled inside [`progress`](Self::progress), so that it must
    /// not block: the context makes nested calls. It is dropped, and with it the nested calls, when the
    /// caller stops waiting.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use ropewalk_rpc::{Address, Engine, Fault, Procedure};
    /// # struct Double;
    /// # impl Procedure for Double {
    /// #     const NAME: &'static str = "example.double";
    /// #     type Input = u64;
    /// #     type Output = u64;
    /// # }
    /// struct DoubleThere;
    ///
    /// impl Procedure for DoubleThere {
    ///     const NAME: &'static str = "example.double_there";
    ///     type Input = (Address, u64);
    ///     type Output = u64;
    /// }
    ///
    /// fn serve(engine: &mut Engine) {
    ///     engine.serve_async::<DoubleThere, _>(|context, (there, number)| async move {
    ///         let doubled = context.call::<Double>(&there, number, Duration::MAX).await;
    ///         doubled.map_err(Fault::new)
    ///     });
    /// }
    /// ```
    ///
    /// # Panics
    /// As for [`serve`](Self::serve).
    pub fn serve_async<P, F>(&mut self, mut handler: impl FnMut(CallContext, P::Input) -> F + Send + 'static)
    where
        P: Procedure<Output: 'static>,
        F: Future<Output = Result<P::Output, Fault>> + Send + 'static,
    {
        let handle = self.handle();
        self.serve_later::<P>(move |engine, caller, input, responder| {
            if engine.guests.tasks() >= Self::TASKS_MAX {
                return responder.answer(Err(Fault::new("too many calls are in progress here")));
            }
            let span = tracing::Span::current();
            let cancellation = responder.cancellation().clone();
            let handled = handler(CallContext::new(caller, handle.clone()), input);
            let answer = async move {
                let mut handled = pin!(handled);
                let mut cancelled = pin!(cancellation);
                let result = poll_fn(|context| {
                    if let Poll::Ready(result) = handled.as_mut().poll(context) {
                        return Poll::Ready(Some(result));
                    }
                    cancelled.as_mut().poll(context).map(|()| None)
                });
                if let Some(result) = result.await {
                    responder.answer(result);
                }
            };
            engine.guests.spawn(Box::pin(answer.instrument(span)));
        });
    }

    /// Serves the procedure no longer. Returns whether it was served.
    pub fn stop_serving<P: Procedure>(&mut self) -> bool {
        self.serving.stop_serving::<P>()
    }

    /// A handle by which other threads and tasks submit to this engine.
    pub fn handle(&self) -> Handle {
        self.guests.handle()
    }

    /// Zeroed memory to expose, or to pull into: where there is memory that peers on this host can reach without
    /// help, it is of that.
    pub fn allocate(&mut self, length: usize) -> Buffer {
        self.ground.endpoint.allocate(length)
    }

    /// Lets peers that are given the handle pull `memory`, until it is withdrawn.
    pub fn expose(&mut self, memory: Bytes) -> RegionHandle {
        self.ground.endpoint.expose(memory)
    }

    /// Lets peers that are given the handle pull from and push into `memory`, until it is withdrawn.
    pub fn expose_writable(&mut self, memory: Buffer) -> RegionHandle {
        self.ground.endpoint.expose_writable(memory)
    }

    /// Ends the exposure and gives the memory back; `None` if the handle is of no region exposed here.
    pub fn withdraw(&mut self, handle: &RegionHandle) -> Option<Withdrawn> {
        self.ground.endpoint.withdraw(handle)
    }

    /// Lets peers that are given the handle pull the segments, which it shows as one range, until they are
    /// withdrawn. Small neighbours are copied into one region, so that they can be moved at once.
    ///
    /// # Errors
    /// If there are more than [`BulkHandle::SEGMENTS_MAX`].
    pub fn expose_segments(&mut self, segments: Vec<Bytes>) -> Result<BulkHandle, BulkHandleError> {
        segments::expose_list(&mut self.ground.endpoint, segments, |_| None)
    }

    /// As [`expose_segments`](Self::expose_segments), with a CRC-32C of each segment in the handle: a pull of the
    /// whole segment is then checked from end to end.
    ///
    /// # Errors
    /// As for [`expose_segments`](Self::expose_segments).
    pub fn expose_segments_checked(&mut self, segments: Vec<Bytes>) -> Result<BulkHandle, BulkHandleError> {
        let checksum = |segment: &[u8]| Some(crc32c::crc32c(segment));
        segments::expose_list(&mut self.ground.endpoint, segments, checksum)
    }

    /// Lets peers that are given the handle pull from and push into the segments, which it shows as one range,
    /// until they are withdrawn. Small neighbours are copied into one region, and back when they are
    /// withdrawn.
    ///
    /// # Errors
    /// As for [`expose_segments`](Self::expose_segments).
    pub fn expose_segments_writable(&mut self, segments: Vec<Buffer>) -> Result<BulkHandle, BulkHandleError> {
        segments::expose_writable(&mut self.ground.endpoint, segments)
    }

    /// Ends the exposure of all segments of the handle that are exposed here, and gives the memory of each back,
    /// in order: of a slice what it shows. `None` stands for one that is not exposed here.
    pub fn withdraw_bulk(&mut self, handle: &BulkHandle) -> Vec<Option<Withdrawn>> {
        segments::withdraw(&mut self.ground.endpoint, handle)
    }

    /// Fills `into` from the region, from `offset` on, and gives it back.
    ///
    /// # Errors
    /// If the transfer cannot even be started; see [`TransferError::Submit`].
    pub fn pull(
        &mut self,
        region: &RegionHandle,
        offset: u64,
        into: Buffer,
        timeout: Duration,
    ) -> Result<Transfer<Buffer>, TransferError> {
        self.bulk.pull(&mut self.ground, region, offset, into, timeout)
    }

    /// Writes `from` into the region, from `offset` on.
    ///
    /// # Errors
    /// If the transfer cannot even be started; see [`TransferError::Submit`].
    pub fn push(
        &mut self,
        region: &RegionHandle,
        offset: u64,
        from: Bytes,
        timeout: Duration,
    ) -> Result<Transfer<()>, TransferError> {
        self.bulk.push(&mut self.ground, region, offset, from, timeout)
    }

    /// Fills `into` from what the handle shows from `offset` on, and gives it back: across the borders of
    /// segments, and from every process that they are of. The operations that this takes are in progress
    /// together.
    ///
    /// # Errors
    /// If the transfer cannot even be started; see [`TransferError::Submit`].
    pub fn pull_bulk(
        &mut self,
        handle: &BulkHandle,
        offset: u64,
        into: Buffer,
        timeout: Duration,
    ) -> Result<Transfer<Buffer>, TransferError> {
        self.bulk
            .pull_bulk(&mut self.ground, handle, offset, into, timeout)
    }

    /// As [`pull_bulk`](Self::pull_bulk), but fills many buffers, one after the other.
    ///
    /// # Errors
    /// As for [`pull_bulk`](Self::pull_bulk).
    pub fn pull_bulk_scattered(
        &mut self,
        handle: &BulkHandle,
        offset: u64,
        into: Vec<Buffer>,
        timeout: Duration,
    ) -> Result<Transfer<Vec<Buffer>>, TransferError> {
        self.bulk
            .pull_bulk_scattered(&mut self.ground, handle, offset, into, timeout)
    }

    /// Writes `from` into what the handle shows from `offset` on: across the borders of segments, and to every
    /// process that they are of. If it fails, part of it may have been written.
    ///
    /// # Errors
    /// If the transfer cannot even be started; see [`TransferError::Submit`].
    pub fn push_bulk(
        &mut self,
        handle: &BulkHandle,
        offset: u64,
        from: Bytes,
        timeout: Duration,
    ) -> Result<Transfer<()>, TransferError> {
        self.bulk
            .push_bulk(&mut self.ground, handle, offset, from, timeout)
    }

    /// As [`push_bulk`](Self::push_bulk), but writes many parts, one after the other.
    ///
    /// # Errors
    /// As for [`push_bulk`](Self::push_bulk).
    pub fn push_bulk_gathered(
        &mut self,
        handle: &BulkHandle,
        offset: u64,
        from: Vec<Bytes>,
        timeout: Duration,
    ) -> Result<Transfer<()>, TransferError> {
        self.bulk
            .push_bulk_gathered(&mut self.ground, handle, offset, from, timeout)
    }

    /// Pulls a range of what the handle shows chunk by chunk, so that it can be worked on while it comes, and
    /// with less memory than all of it takes (Mercury, section IV-A). It ends by its time-out at the latest.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use ropewalk_rpc::{BulkHandle, Engine, Pipeline, TransferError};
    /// # fn example(engine: &mut Engine, handle: &BulkHandle) -> Result<u64, TransferError> {
    /// let mut sum = 0;
    /// let timeout = Duration::from_secs(10);
    /// let mut chunks = engine.pull_pipelined(handle, 0..handle.len(), Pipeline::default(), timeout)?;
    /// while let Some(chunk) = chunks.next_blocking(engine) {
    ///     sum += chunk?.iter().map(|&byte| u64::from(byte)).sum::<u64>();
    /// }
    /// # Ok(sum)
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the transfer cannot even be started; see [`TransferError::Submit`].
    pub fn pull_pipelined(
        &mut self,
        handle: &BulkHandle,
        range: Range<u64>,
        pipeline: Pipeline,
        timeout: Duration,
    ) -> Result<PulledChunks, TransferError> {
        self.bulk
            .pull_pipelined(&mut self.ground, handle, range, pipeline, timeout)
    }

    /// Writes a range of what the handle shows chunk by chunk, so that it can be sent while it is made, and with less
    /// memory than all of it takes: the counterpart of [`pull_pipelined`](Self::pull_pipelined). It ends by its
    /// time-out at the latest. If it fails, part of the range may have been written.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use ropewalk_rpc::{BulkHandle, Engine, Pipeline, TransferError};
    /// # fn example(engine: &mut Engine, handle: &BulkHandle) -> Result<(), TransferError> {
    /// let timeout = Duration::from_secs(10);
    /// let mut chunks = engine.push_pipelined(handle, 0..handle.len(), Pipeline::default(), timeout)?;
    /// while let Some(chunk) = chunks.next_blocking(engine) {
    ///     let mut chunk = chunk?;
    ///     let offset = chunk.offset();
    ///     for (at, byte) in (offset..).zip(chunk.iter_mut()) {
    ///         *byte = at as u8;
    ///     }
    ///     chunk.push();
    /// }
    /// // All of it was written.
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the range is not inside what the handle shows, or may not be written; see [`TransferError::Submit`].
    pub fn push_pipelined(
        &mut self,
        handle: &BulkHandle,
        range: Range<u64>,
        pipeline: Pipeline,
        timeout: Duration,
    ) -> Result<PushedChunks, TransferError> {
        self.bulk
            .push_pipelined(&mut self.ground, handle, range, pipeline, timeout)
    }

    /// Switches counting by procedure on or off, and with it how long calls take: two looks at the clock for each
    /// call and each request. It is off at first; the other counters cost next to nothing.
    pub fn count_procedures(&mut self, count: bool) {
        self.ground.counts_procedures = count;
    }
}

impl<C> PipelinedChunks<C> {
    /// Drives the engine, which must be the one that moves the chunks, until the next chunk is here or there is room to
    /// fill it, and takes it; `None` when all were moved.
    ///
    /// # Errors
    /// If the transfer has failed. Nothing more comes then.
    ///
    /// # Panics
    /// If it is called by a handler.
    pub fn next_blocking(&mut self, engine: &mut Engine) -> Option<Result<C, TransferError>> {
        let id = self.id();
        loop {
            // Without waking anybody: who would be is here.
            engine.bulk.serve_pipeline(&mut engine.ground, id);
            if let Poll::Ready(next) = self.take() {
                // There is room for another one.
                engine.bulk.serve_pipeline(&mut engine.ground, id);
                return next;
            }
            engine.wait(Duration::from_secs(1));
        }
    }
}
