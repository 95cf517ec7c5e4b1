//! Procedures, which can be called.

use serde::{Serialize, de::DeserializeOwned};

/// A procedure: its name, and the types of what goes in and what comes out.
///
/// Both sides of a call share this one definition. Input and output together with their framing are at most
/// [`Limits::message_size_max`](ropewalk_fabric::Limits::message_size_max) bytes; what may be larger, or is a
/// plain array of numbers, is better exposed and passed as a [`RegionHandle`](ropewalk_fabric::RegionHandle). Bytes are
/// best a [`ByteBuf`](crate::ByteBuf): serde goes through a `Vec<u8>` one by one.
///
/// ```
/// struct Add;
///
/// impl ropewalk_rpc::Procedure for Add {
///     const NAME: &'static str = "example.add";
///     type Input = (u32, u32);
///     type Output = u32;
/// }
/// ```
pub trait Procedure {
    /// The name by which the target knows it, unique in the job.
    const NAME: &'static str;
    /// The arguments.
    type Input: Serialize + DeserializeOwned;
    /// The result.
    type Output: Serialize + DeserializeOwned;
}

/// The identifier of a procedure's name in a request: its 64-bit FNV-1a hash.
pub(crate) const fn procedure_id(name: &str) -> u64 {
    let bytes = name.as_bytes();
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut at = 0;
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u64).wrapping_mul(0x0000_0100_0000_01b3);
        at += 1;
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hash is the published FNV-1a: a change would part versions that otherwise understand each other.
    #[test]
    fn ids_are_fnv_1a() {
        assert_eq!(procedure_id(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(procedure_id("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(procedure_id("foobar"), 0x8594_4171_f739_67e8);
    }
}
