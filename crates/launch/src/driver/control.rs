//! The stream between launcher and agent.

use std::io;

use serde::{Serialize, de::DeserializeOwned};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::protocol::FRAME_SIZE_MAX;

/// Reads one message; `None` if the stream ended between two.
pub(super) async fn read<M: DeserializeOwned>(
    stream: &mut (impl AsyncRead + Unpin),
) -> io::Result<Option<M>> {
    let length = match stream.read_u32_le().await {
        Ok(length) => length as usize,
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    };
    if length > FRAME_SIZE_MAX {
        return Err(invalid(format!("a frame of {length} bytes is too large")));
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    postcard::from_bytes(&body).map(Some).map_err(invalid)
}

/// Writes one message.
pub(super) async fn write<M: Serialize>(
    stream: &mut (impl AsyncWrite + Unpin),
    message: &M,
) -> io::Result<()> {
    let mut frame = postcard::to_extend(message, vec![0; 4]).map_err(invalid)?;
    let length = frame.len() - 4;
    if length > FRAME_SIZE_MAX {
        return Err(invalid(format!("a frame of {length} bytes is too large")));
    }
    frame[..4].copy_from_slice(&(length as u32).to_le_bytes());
    stream.write_all(&frame).await
}

fn invalid(reason: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}
