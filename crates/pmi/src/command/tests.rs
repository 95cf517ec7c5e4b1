use std::fmt::Debug;

use bstr::BStr;
use proptest::prelude::*;

use super::*;
use crate::{LINE_SIZE_MAX, Message, MessageBuffer};

fn decode<C>(
    bytes: &[u8],
    decode: impl Fn(Message<'_>) -> Result<Decoded<C>, DecodeError>,
) -> Result<Decoded<C>, DecodeError> {
    let mut buffer = MessageBuffer::default();
    buffer.push(bytes);
    let message = buffer.next_message().expect("a message").expect("a whole one");
    decode(message)
}

fn line(body: &[u8]) -> Message<'_> {
    Message {
        form: Form::Line,
        body,
    }
}

/// A message of a row of the table in which every attribute is there, made of nothing but the row. Of each key what
/// its type takes is found by trying.
fn specimen<C>(row: &Command, decode: impl Fn(Message<'_>) -> Result<Decoded<C>, DecodeError>) -> Decoded<C> {
    let mut truths = Vec::new();
    loop {
        let mut attributes = vec![match row.form {
            Form::Block => format!("mcmd={}", row.name),
            Form::Frame => format!("cmd={};thrid=0x7f", row.name),
            Form::Line => format!("cmd={}", row.name),
        }];
        for key in row.keys {
            let text = match (*key, row.form) {
                ("arg", _) => "arg1=a\narg2=b\nargcnt=2".to_owned(),
                ("subcmd", _) => {
                    "subcmd=p;maxprocs=2;argc=1;argv0=a;;;infokeycount=1;infokey0=k;infoval0=v".to_owned()
                }
                ("info", Form::Frame) if row.name != "publish_result" => {
                    "infokeycount=1;infokey0=k;infoval0=v".to_owned()
                }
                ("preput", Form::Frame) => "preputcount=1;ppkey0=k;ppval0=v".to_owned(),
                ("info", Form::Block) => "info_num=1\ninfo_key_0=k\ninfo_val_0=v w".to_owned(),
                ("preput", Form::Block) => "preput_num=1\npreput_key_0=k\npreput_val_0=v=w".to_owned(),
                (key, _) if truths.contains(&key) => format!("{key}=TRUE"),
                (key, _) => format!("{key}=1"),
            };
            attributes.push(text);
        }
        let body = match row.form {
            Form::Block => attributes.join("\n"),
            Form::Frame => attributes.join(";") + ";",
            Form::Line => attributes.join(" "),
        };
        let body = body.as_bytes();
        match decode(Message { form: row.form, body }) {
            Ok(decoded) => return decoded,
            Err(DecodeError::Attribute { key, .. }) if !truths.contains(&key) => truths.push(key),
            Err(error) => panic!("{row:?}: {error}"),
        }
    }
}

fn round_trip<C: Clone + Debug + PartialEq>(
    rows: &[Command],
    read: impl Fn(Message<'_>) -> Result<Decoded<C>, DecodeError> + Copy,
    write: impl Fn(&C, Form, Option<&BStr>) -> Result<Vec<u8>, EncodeError>,
    name: impl Fn(&C, Form) -> Option<&'static str>,
) {
    for row in rows {
        let decoded = specimen(row, read);
        assert_eq!(name(&decoded.command, row.form), Some(row.name));
        let thread = decoded.thread.as_ref().map(|thread| BStr::new(&**thread));
        assert_eq!(thread.is_some(), row.form == Form::Frame, "{row:?}");
        let written = write(&decoded.command, row.form, thread).expect("what was read can be written");
        assert_eq!(decode(&written, read).as_ref(), Ok(&decoded), "{row:?}");
        // The keys are written in the order of the table.
        let text = String::from_utf8(written).expect("ASCII");
        let mut rest = &text[..];
        for key in row
            .keys
            .iter()
            .filter(|key| !["preput", "info", "arg"].contains(key))
        {
            let at = rest
                .find(&format!("{key}="))
                .unwrap_or_else(|| panic!("{key} in {text}"));
            rest = &rest[at..];
        }
    }
}

/// Every row of the table, in both directions, says what it means: what is read, written and read again is the same.
#[test]
fn every_command_survives_the_wire() {
    round_trip(
        Request::COMMANDS,
        Request::decode,
        |c, f, t| c.encode(f, t),
        |c, f| c.name(f),
    );
    round_trip(
        Response::COMMANDS,
        Response::decode,
        |c, f, t| c.encode(f, t),
        |c, f| c.name(f),
    );
}

/// No form has two commands of the same name, nor a command two attributes of the same key.
#[test]
fn names_are_unique() {
    for rows in [Request::COMMANDS, Response::COMMANDS] {
        for (index, row) in rows.iter().enumerate() {
            assert!(
                rows[..index]
                    .iter()
                    .all(|other| (other.form, other.name) != (row.form, row.name))
            );
            for (place, key) in row.keys.iter().enumerate() {
                assert!(!row.keys[..place].contains(key), "{row:?}");
            }
        }
    }
}

/// "Every response MUST contain `rc=`", "Responses are matched by the client against the expected name as a
/// PREFIX compare of the full expected string", which is the request's name and `-response`; nobody waits for
/// one to an abort.
#[test]
fn every_frame_has_an_answer_with_a_return_code() {
    let frames = |rows: &'static [Command]| rows.iter().filter(|row| row.form == Form::Frame);
    for request in frames(Request::COMMANDS) {
        let name = format!("{}-response", request.name);
        let response = frames(Response::COMMANDS).find(|row| row.name == name);
        match request.name {
            "abort" => assert_eq!(response, None),
            _ => assert!(response.is_some_and(|row| row.keys.contains(&"rc")), "{name}"),
        }
    }
    assert_eq!(
        frames(Response::COMMANDS).count() + 1,
        frames(Request::COMMANDS).count()
    );
}

/// "Unknown keys are ignored by all clients", and Slurm's order of attributes is as good as Hydra's.
#[test]
fn order_and_unknown_attributes_do_not_matter() {
    let maxes = Response::Maxes {
        kvsname_max: 1,
        key_max: 2,
        value_max: 3,
    };
    let decoded = Response::decode(line(b"cmd=maxes rc=0 vallen_max=3 kvsname_max=1 keylen_max=2"));
    assert_eq!(decoded.map(|decoded| decoded.command), Ok(maxes));
}

/// The error says if there is no command, and names an unknown command or a malformed attribute.
#[test]
fn malformed_messages_are_named() {
    let error = |body| Request::decode(line(body)).expect_err("malformed");
    assert_eq!(error(b"GET / HTTP/1.1"), DecodeError::NoCommand);
    assert_eq!(error(b"key=1 cmd=finalize"), DecodeError::NoCommand);
    let unknown = DecodeError::UnknownCommand {
        command: "kvs-fence".into(),
        thread: None,
    };
    assert_eq!(error(b"cmd=kvs-fence"), unknown);
    let attribute = DecodeError::Attribute {
        command: "abort",
        key: "exitcode",
    };
    assert_eq!(error(b"cmd=abort exitcode=seven"), attribute);
}

/// "S must keep every response line <= 1023 bytes": a longer one is an error, as is a value that would end the line
/// and a command that the form does not have. What was there before stays.
#[test]
fn what_no_client_could_read_is_not_written() {
    let kvsname = |value: &[u8]| Response::MyKvsname {
        kvsname: value.into(),
        rc: None,
    };
    let write = |response: &Response, form| {
        let mut out = b"before".to_vec();
        let result = response.encode_into(form, None, &mut out);
        assert!(out.starts_with(b"before") && (result.is_ok() || out.len() == 6));
        result
    };
    let overhead = kvsname(b"").encode(Form::Line, None).expect("short").len();
    let longest = vec![b'x'; LINE_SIZE_MAX - overhead];
    assert_eq!(write(&kvsname(&longest), Form::Line), Ok(()));
    let too_long = [&longest[..], b"x"].concat();
    let error = EncodeError::TooLong {
        size: LINE_SIZE_MAX + 1,
        size_max: LINE_SIZE_MAX,
    };
    assert_eq!(write(&kvsname(&too_long), Form::Line), Err(error));
    assert_eq!(write(&kvsname(&too_long), Form::Frame), Ok(()));
    for ending in [&b"a\nb"[..], b"a\0b"] {
        assert_eq!(write(&kvsname(ending), Form::Line), Err(EncodeError::Character));
    }
    assert!(matches!(
        write(&kvsname(b"x"), Form::Block),
        Err(EncodeError::Form { .. })
    ));
}

proptest! {
    /// A frame carries every value, and any word for a thread; a line what has no end of line in it.
    #[test]
    fn values_come_back(
        value in proptest::collection::vec(prop_oneof![Just(b';'), Just(b'='), Just(b' '), any::<u8>()], 0..30),
        thread in proptest::collection::vec(any::<u8>(), 0..9),
    ) {
        let put = Request::Put { kvsname: None, key: "k".into(), value: value.clone().into() };
        let frame = put.encode(Form::Frame, Some(BStr::new(&thread))).expect("short");
        let decoded = decode(&frame, Request::decode).expect("well-formed");
        prop_assert_eq!(decoded.thread, Some(BString::from(thread)));
        prop_assert_eq!(&decoded.command, &put);
        if let Ok(line) = put.encode(Form::Line, None) {
            let decoded = decode(&line, Request::decode).expect("well-formed");
            prop_assert_eq!(decoded.command, put);
        } else {
            prop_assert!(value.contains(&b'\n') || value.contains(&0));
        }
    }

    /// A spawn is the same in both dialects.
    #[test]
    fn spawns_come_back(
        programs in proptest::collection::vec(
            ("[a-z;= ]{0,5}", 0..9_u32, proptest::collection::vec("[a-z;= ]{0,5}", 0..12),
             proptest::collection::vec(("[a-z]{1,3}", "[a-z;= ]{0,5}"), 0..12)),
            1..4,
        ),
        preput in proptest::collection::vec(("[a-z]{1,3}", "[a-z;= ]{0,5}"), 0..12),
    ) {
        let pairs = |pairs: Vec<(String, String)>| -> Vec<(BString, BString)> {
            pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect()
        };
        let spawn = Spawn {
            preput: pairs(preput),
            commands: programs
                .into_iter()
                .map(|(program, processes, arguments, info)| SpawnCommand {
                    program: program.into(),
                    processes,
                    arguments: arguments.into_iter().map(BString::from).collect(),
                    info: pairs(info),
                })
                .collect(),
        };
        let frame = Request::Spawn {
            count: spawn.commands.len() as u32,
            preput: Pairs(spawn.preput.clone()),
            commands: SpawnCommands(spawn.commands.clone()),
        };
        let bytes = frame.encode(Form::Frame, None).expect("short");
        prop_assert_eq!(decode(&bytes, Request::decode).expect("well-formed").command, frame);

        let mut blocks = SpawnBlocks::default();
        let mut whole = None;
        for block in SpawnBlocks::of(&spawn) {
            prop_assert_eq!(&whole, &None);
            let bytes = block.encode(Form::Block, None).expect("no newlines");
            let decoded = decode(&bytes, Request::decode).expect("well-formed");
            whole = blocks.push(decoded.command).expect("in order");
        }
        prop_assert_eq!(whole, Some(spawn));
    }
}
