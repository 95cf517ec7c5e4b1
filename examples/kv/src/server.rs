//! The server's handlers.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use ropewalk_rpc::{BulkHandle, CallContext, Engine, Fault};

use crate::{
    Delete, Get, List, Put, PutRequest, Refusal, Value,
    store::{Entry, Store},
};

/// Serves the key-value procedures on an engine, which keeps at most `bytes_max` bytes.
pub fn serve(engine: &mut Engine, bytes_max: u64) {
    let shared = Arc::new(Mutex::new(Store::new(bytes_max)));
    let store = shared.clone();
    engine.serve::<Get>(move |_, key| {
        Ok(lock(&store).get(&key).map(|entry| match entry {
            Entry::Exposed(handle) => Value::Exposed(BulkHandle::from(handle.clone())),
            Entry::Inline(value) => Value::Inline(value.clone()),
        }))
    });
    let store = shared.clone();
    engine.serve::<List>(move |_, page| Ok(lock(&store).list(&page)));
    let store = shared.clone();
    engine.serve_later::<Delete>(move |engine, _, key, responder| {
        let removed = lock(&store).remove(&key);
        responder.answer(Ok(removed.is_some()));
        forget(engine, removed);
    });
    engine.serve_async::<Put, _>(move |context, request| put(context, request, shared.clone()));
}

async fn put(
    context: CallContext,
    request: PutRequest,
    store: Arc<Mutex<Store>>,
) -> Result<Result<(), Refusal>, Fault> {
    let PutRequest { key, value } = request;
    let length = match &value {
        Value::Exposed(handle) => handle.len(),
        Value::Inline(value) => value.len() as u64,
    };
    if let Err(refusal) = lock(&store).reserve(&key, length) {
        return Ok(Err(refusal));
    }
    // Also when the handler is dropped because the caller waits no longer.
    let room = Room {
        store: store.clone(),
        key: key.clone(),
        length,
        is_used: false,
    };
    let value = match value {
        Value::Exposed(handle) => pull(&context, handle).await?,
        Value::Inline(value) => value,
    };
    let stored = context.handle().with(move |engine| {
        let entry = if value.len() > crate::INLINE_MAX {
            Entry::Exposed(engine.expose(value))
        } else {
            Entry::Inline(value)
        };
        room.use_up();
        let replaced = lock(&store).insert(key, entry);
        forget(engine, replaced);
    });
    stored.await.map_err(Fault::new)?;
    Ok(Ok(()))
}

/// Pulls a value into memory that clients will pull it from.
async fn pull(context: &CallContext, handle: BulkHandle) -> Result<Bytes, Fault> {
    let timeout = context.remaining().unwrap_or(Duration::MAX);
    let pull = context.handle().with(move |engine| {
        // There is room for it, so its length is a usize.
        let into = engine.allocate(handle.len() as usize);
        engine.pull_bulk(&handle, 0, into, timeout)
    });
    let pull = pull.await.map_err(Fault::new)?.map_err(Fault::new)?;
    let pulled = pull.await.map_err(Fault::new)?;
    Ok(Bytes::from(pulled))
}

/// Withdraws a value that is there no longer. Who pulls it just now asks again.
fn forget(engine: &mut Engine, entry: Option<Entry>) {
    if let Some(Entry::Exposed(handle)) = entry {
        engine.withdraw(&handle);
    }
}

/// Room that was made for a value.
struct Room {
    store: Arc<Mutex<Store>>,
    key: String,
    length: u64,
    is_used: bool,
}

impl Room {
    /// The value is there.
    fn use_up(mut self) {
        self.is_used = true;
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if !self.is_used {
            lock(&self.store).give_up(&self.key, self.length);
        }
    }
}

/// Nothing here panics while it holds the lock.
fn lock(store: &Mutex<Store>) -> MutexGuard<'_, Store> {
    store.lock().unwrap_or_else(PoisonError::into_inner)
}
