//! Who waits for the operations of the endpoint.

use ropewalk_fabric::OperationId;

/// Keeps for each operation in progress who waits for it, by the operation's index.
#[derive(Debug)]
pub(crate) struct Operations<W> {
    places: Vec<Option<(OperationId, W)>>,
    count: usize,
}

impl<W> Operations<W> {
    pub(crate) const fn new() -> Self {
        Self {
            places: Vec::new(),
            count: 0,
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn insert(&mut self, operation: OperationId, waiting: W) {
        self.insert_with(operation, || waiting);
    }

    /// As [`insert`](Self::insert), but what waits is made where it stays: to move it there would have to wait for what
    /// was just written.
    #[inline]
    pub(crate) fn insert_with(&mut self, operation: OperationId, waiting: impl FnOnce() -> W) {
        let index = operation.index();
        if index >= self.places.len() {
            self.places.resize_with(index + 1, || None);
        }
        let place = &mut self.places[index];
        assert!(
            place.is_none(),
            "an index is used again when its operation has ended"
        );
        *place = Some((operation, waiting()));
        self.count += 1;
    }

    /// `None` if the operation has ended.
    pub(crate) fn get(&self, operation: OperationId) -> Option<&W> {
        let (found, waiting) = self.places.get(operation.index())?.as_ref()?;
        (*found == operation).then_some(waiting)
    }

    /// The operation with this index, if it is in progress.
    pub(crate) fn at(&self, index: usize) -> Option<(OperationId, &W)> {
        let (operation, waiting) = self.places.get(index)?.as_ref()?;
        Some((*operation, waiting))
    }

    /// `None` if the operation has ended.
    pub(crate) fn remove(&mut self, operation: OperationId) -> Option<W> {
        self.remove_if(operation, |_| true)
    }

    /// As [`remove`](Self::remove), if it is `wanted`.
    #[inline]
    pub(crate) fn remove_if(&mut self, operation: OperationId, wanted: impl FnOnce(&W) -> bool) -> Option<W> {
        let place = self.places.get_mut(operation.index())?;
        let (_, waiting) = place.take_if(|(found, waiting)| *found == operation && wanted(waiting))?;
        self.count -= 1;
        Some(waiting)
    }

    /// Takes all out.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = W> {
        self.count = 0;
        std::mem::take(&mut self.places)
            .into_iter()
            .flatten()
            .map(|(_, waiting)| waiting)
    }
}
