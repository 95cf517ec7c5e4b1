//! Contributions whose bytes can be made again.

use std::{
    collections::BTreeMap,
    fmt, io,
    sync::{Arc, OnceLock},
};

use bytemuck::Pod;
use ropewalk_reduce_core::{Contributions, Member, Session, Token};

/// A contribution whose bytes can be made again, range by range, by every rank that holds it: a file that all ranks can
/// read, or a function of its position.
///
/// All ranks that hold it have to read the same bytes.
pub trait Source: Send + Sync + 'static {
    /// Reads the bytes from `offset` on, which fill `into`. It is called by a thread of the job, or by one that makes a
    /// call of it or waits, for ranges of whole elements and at most a mebibyte, and for some of them more than once.
    /// It must not take a lock that such a thread holds.
    ///
    /// # Errors
    /// If the bytes cannot be read. The reduction then ends on all ranks with
    /// [`ReductionError::Source`](crate::ReductionError::Source), which has the text of the error: it should name the
    /// file.
    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;

    /// Shows these bytes in memory where they are already, as that of a mapped file, so that they need not be copied.
    /// Returns `false`, as it does by default, if it has not called `borrower` and they have to be [read](Self::read).
    ///
    /// # Errors
    /// As [`read`](Self::read); what the borrower has got is then not used.
    fn lend(&self, offset: u64, length: usize, borrower: &mut dyn FnMut(&[u8])) -> io::Result<bool> {
        let _ = (offset, length, borrower);
        Ok(false)
    }

    /// A digest of all bytes, as soon as it is known; never known by default. It is asked for after each read. If ranks
    /// that have read the contribution say different ones, the reduction ends on all ranks with
    /// [`ReductionError::Source`](crate::ReductionError::Source).
    fn digest(&self) -> Option<[u8; 32]> {
        None
    }
}

/// The contributions of a [reduction of sources](crate::Group::reduce_sources) that this rank can read.
#[derive(Clone, Default)]
pub struct Sources {
    /// The number of contributions in the reduction, the same on all ranks.
    pub members: u32,
    /// Bytes of each of them.
    pub bytes: u64,
    /// Those that this rank can read, by their numbers, counted from 0.
    pub held: BTreeMap<u32, Arc<dyn Source>>,
}

impl Sources {
    /// The most contributions in a reduction of sources.
    pub const MEMBERS_MAX: u32 = Contributions::SHARED_MAX;

    /// Vectors of `elements` elements that each rank can make, as `make` returns them by their numbers. A rank that
    /// dies costs nothing but time: another one makes its contributions again.
    ///
    /// A vector is made on the job's progress thread when it is needed for the first time, on one of the ranks unless
    /// that dies, and kept until the end: a rank needs memory for `members` vectors, divided by the number of ranks.
    /// It is not said which rank makes which; for one contribution of each rank `members` is the number of ranks.
    ///
    /// `make` has to return the same bits for the same number on all ranks. A vector that was made again and has
    /// another digest than the scheduler knows from the rank before ends the reduction with
    /// [`ReductionError::Source`](crate::ReductionError::Source), as does one of another length.
    ///
    /// # Examples
    /// ```
    /// use ropewalk_names::Rank;
    /// use ropewalk_reduce::{Job, ReduceOptions, Sources, Sum};
    ///
    /// let job = Job::from_env()?;
    /// // Part of an integral, by the number of the part.
    /// let part = |number: u32| (0..1_000).map(|at| f64::from(number) * f64::from(at)).collect();
    /// let sources = Sources::from_fn(job.size(), 1_000, part);
    /// let reduction = job.world().reduce_sources::<f64>(sources, Sum, Rank(0), &ReduceOptions::default())?;
    /// if let Some(sum) = reduction.get()?.value {
    ///     println!("{}", sum[999]);
    /// }
    /// job.finalize()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_fn<T: Pod + Send + Sync>(
        members: u32,
        elements: usize,
        make: impl Fn(u32) -> Vec<T> + Send + Sync + 'static,
    ) -> Self {
        let make: Arc<MakeVector<T>> = Arc::new(make);
        // More are an error when they are reduced.
        let held = (0..members.min(Self::MEMBERS_MAX)).map(|member| {
            let source = MadeVector {
                member,
                elements,
                make: Arc::clone(&make),
                made: OnceLock::new(),
            };
            (member, Arc::new(source) as Arc<dyn Source>)
        });
        Self {
            members,
            bytes: (elements as u64).saturating_mul(size_of::<T>() as u64),
            held: held.collect(),
        }
    }

    pub(crate) fn is_valid(&self) -> bool {
        (1..=Self::MEMBERS_MAX).contains(&self.members)
            && self.held.keys().all(|member| *member < self.members)
    }
}

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources")
            .field("members", &self.members)
            .field("bytes", &self.bytes)
            .field("held", &self.held.keys())
            .finish()
    }
}

type MakeVector<T> = dyn Fn(u32) -> Vec<T> + Send + Sync;

/// A vector that is made when it is needed.
struct MadeVector<T> {
    member: u32,
    elements: usize,
    make: Arc<MakeVector<T>>,
    made: OnceLock<(Vec<T>, [u8; 32])>,
}

impl<T: Pod> MadeVector<T> {
    fn bytes(&self, offset: u64, length: usize) -> io::Result<&[u8]> {
        let (vector, _) = self.made.get_or_init(|| {
            let vector = (self.make)(self.member);
            let digest = blake3::hash(bytemuck::cast_slice(&vector)).into();
            (vector, digest)
        });
        if vector.len() != self.elements {
            let (member, found, expected) = (self.member, vector.len(), self.elements);
            let error = format!("vector {member} was made with {found} elements and not {expected}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        }
        let bytes: &[u8] = bytemuck::cast_slice(vector);
        let from_offset = usize::try_from(offset)
            .ok()
            .and_then(|offset| bytes.get(offset..));
        let range = from_offset.and_then(|bytes| bytes.get(..length));
        range.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

impl<T: Pod + Send + Sync> Source for MadeVector<T> {
    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        into.copy_from_slice(self.bytes(offset, into.len())?);
        Ok(())
    }

    fn lend(&self, offset: u64, length: usize, borrower: &mut dyn FnMut(&[u8])) -> io::Result<bool> {
        borrower(self.bytes(offset, length)?);
        Ok(true)
    }

    fn digest(&self) -> Option<[u8; 32]> {
        self.made.get().map(|(_, digest)| *digest)
    }
}

/// The token of a contribution that ranks share: all of them have to name the same one.
pub(crate) fn shared_token(session: Session, member: Member) -> Token {
    let mut hasher = blake3::Hasher::new_derive_key("ropewalk 2026-11 token of a shared contribution");
    for number in [session.group, session.call, u64::from(member.0)] {
        hasher.update(&number.to_le_bytes());
    }
    let mut token = [0; 16];
    hasher.finalize_xof().fill(&mut token);
    Token(u128::from_le_bytes(token))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// A vector is made once, when it is read first, and has the digest of its bits from then on.
    #[test]
    fn vectors_are_made_once() {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let sources = Sources::from_fn(3, 4, |member| {
            MADE.fetch_add(1, Ordering::Relaxed);
            (0..4).map(|at| member * 10 + at).collect::<Vec<u32>>()
        });
        assert_eq!((sources.members, sources.bytes, sources.held.len()), (3, 16, 3));
        let source = &sources.held[&2];
        assert_eq!((source.digest(), MADE.load(Ordering::Relaxed)), (None, 0));
        let mut read = [0; 8];
        source.read(8, &mut read).unwrap();
        assert_eq!(bytemuck::cast_slice::<u8, u32>(&read), [22, 23]);
        let mut lent = Vec::new();
        let is_lent = source
            .lend(4, 4, &mut |bytes| lent.extend_from_slice(bytes))
            .unwrap();
        assert!(is_lent && lent == 21_u32.to_ne_bytes());
        let whole: Vec<u8> = (20..24_u32).flat_map(u32::to_ne_bytes).collect();
        assert_eq!(source.digest(), Some(*blake3::hash(&whole).as_bytes()));
        assert_eq!(MADE.load(Ordering::Relaxed), 1);
        assert!(source.read(9, &mut read).is_err(), "there are 7 bytes left");
    }

    /// A vector of another length than was said is an error that names it.
    #[test]
    fn other_lengths_are_errors() {
        let sources = Sources::from_fn(2, 4, |member| vec![0_u8; 4 + member as usize]);
        assert!(sources.held[&0].read(0, &mut [0; 4]).is_ok());
        let error = sources.held[&1].read(0, &mut [0; 4]).unwrap_err();
        assert_eq!(error.to_string(), "vector 1 was made with 5 elements and not 4");
    }
}
