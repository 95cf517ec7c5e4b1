//! The requests of a client.

use bstr::{BStr, BString};

use super::{Arguments, DecodeError, EncodeError, Pairs, SpawnCommands, attribute::Attribute, commands};
use crate::{
    Form, Message,
    wire::{Attributes, MessageWriter},
};

commands! {
    /// A request of a client.
    enum Request, last value Some("value"), {
        /// End the whole job. Not answered.
        Abort {
            /// The job's exit code.
            exit_code: Option<i32>,
            /// True if the whole job is meant, and not only this process.
            is_world: Option<bool>,
            /// Why.
            message: Option<BString>,
        } => {
            Line "abort" [exit_code = "exitcode", message = "message"],
            Frame "abort" [is_world = "isworld", exit_code = "exitcode", message = "msg" | "message"]
        }
        /// Wait for all processes of the group; what was put before can then be got by all.
        Fence {
            /// A part of the group, and a word that tells its fences from others (PMI 1.2): `WORLD:word`,
            /// `NODE:word` or `0,1,5:word`.
            group: Option<BString>,
        } => {
            Line "barrier_in" [group = "group"],
            Frame "kvs-fence" [group = "group"]
        }
        /// The process is done with PMI.
        Finalize {} => { Line "finalize" [], Frame "finalize" [] }
        /// The first frame.
        FullInit {
            /// The job, if `PMI_JOBID` says it.
            job: Option<BString>,
            /// The client's rank.
            rank: u32,
            /// True if several threads of the client ask at once.
            threaded: Option<bool>,
        } => { Frame "fullinit" [job = "pmijobid", rank = "pmirank" | "srcid", threaded = "threaded"] }
        /// What was put under a key?
        Get {
            /// The key-value space.
            kvsname: Option<BString>,
            /// Who put it, or -1: a hint.
            source: Option<i32>,
            /// The key.
            key: BString,
        } => {
            Line "get" [kvsname = "kvsname", key = "key"],
            Frame "kvs-get" [kvsname = "jobid", source = "srcid", key = "key"]
        }
        /// Which part of an MPMD program is this?
        GetAppnum {} => { Line "get_appnum" [] }
        /// What does the process manager say about the job?
        GetJobAttribute {
            /// The attribute.
            key: BString,
        } => { Frame "info-getjobattr" [key = "key"] }
        /// How long may names, keys and values be?
        GetMaxes {} => { Line "get_maxes" [] }
        /// What is the process group's key-value space called?
        GetMyKvsname {} => { Line "get_my_kvsname" [], Frame "job-getid" [] }
        /// What did a process of this node put for the others of the node?
        GetNodeAttribute {
            /// The attribute.
            key: BString,
            /// True if the answer waits until somebody puts the attribute.
            wait: bool,
        } => { Frame "info-getnodeattr" [key = "key", wait = "wait"] }
        /// How many processes could there be?
        GetUniverseSize {} => { Line "get_universe_size" [] }
        /// The first message.
        Init {
            /// The major version the client wants to speak.
            version: u32,
            /// The minor version.
            subversion: u32,
            /// `whole` asks whether the server keeps values with spaces and `;` (ours alone; others ignore it).
            values: Option<BString>,
        } => { Line "init" [version = "pmi_version", subversion = "pmi_subversion", values = "values"] }
        /// The first message on a connection that the client made itself (`PMI_PORT`).
        InitAck {
            /// The client's rank.
            rank: u32,
        } => { Line "initack" [rank = "pmiid"] }
        /// From now on get from the key-value space of another job too.
        JobConnect {
            /// The other job.
            job: BString,
        } => { Frame "job-connect" [job = "jobid"] }
        /// The end of [`JobConnect`](Self::JobConnect).
        JobDisconnect {
            /// The other job.
            job: BString,
        } => { Frame "job-disconnect" [job = "jobid"] }
        /// Which port was published under a name?
        LookupName {
            /// The name.
            service: BString,
            /// Wishes.
            info: Pairs,
        } => {
            Line "lookup_name" [service = "service"],
            Frame "name-lookup" [service = "name", info = "info"]
        }
        /// Make a port known under a name.
        PublishName {
            /// The name.
            service: BString,
            /// The port.
            port: BString,
            /// Wishes.
            info: Pairs,
        } => {
            Line "publish_name" [service = "service", port = "port"],
            Frame "name-publish" [service = "name", port = "port", info = "info"]
        }
        /// Keep a value under a key.
        Put {
            /// The key-value space.
            kvsname: Option<BString>,
            /// The key.
            key: BString,
            /// The value.
            value: BString,
        } => {
            Line "put" [kvsname = "kvsname", key = "key", value = "value"],
            Frame "kvs-put" [key = "key", value = "value"]
        }
        /// Tell the other processes of the node.
        PutNodeAttribute {
            /// The attribute.
            key: BString,
            /// Its value.
            value: BString,
        } => { Frame "info-putnodeattr" [key = "key", value = "value"] }
        /// A process that nobody started greets the process manager that it started.
        Singinit {
            /// The major version the client wants to speak.
            version: u32,
            /// The minor version.
            subversion: u32,
            /// `yes` if its standard input and output shall be the process manager's, or else `no`.
            stdio: Option<BString>,
            /// How it proves who it is: `none`.
            authentication: Option<BString>,
        } => {
            Line "singinit" [
                version = "pmi_version", subversion = "pmi_subversion", stdio = "stdio",
                authentication = "authtype"
            ]
        }
        /// Start more processes.
        Spawn {
            /// How many programs.
            count: u32,
            /// The pairs that the new group's key-value space holds from the beginning.
            preput: Pairs,
            /// The programs.
            commands: SpawnCommands,
        } => { Frame "spawn" [count = "ncmds", preput = "preput", commands = "subcmd"] }
        /// Start more processes: one program of several.
        SpawnBlock {
            /// How many processes of it.
            processes: u32,
            /// The program.
            program: BString,
            /// How many programs.
            total: u32,
            /// Which of them this is, from 1.
            so_far: u32,
            /// Its arguments.
            arguments: Arguments,
            /// The pairs that the new group's key-value space holds from the beginning.
            preput: Pairs,
            /// Wishes.
            info: Pairs,
        } => {
            Block "spawn" [
                processes = "nprocs", program = "execname", total = "totspawns", so_far = "spawnssofar",
                arguments = "arg", preput = "preput", info = "info"
            ]
        }
        /// Forget a published name.
        UnpublishName {
            /// The name.
            service: BString,
            /// Wishes.
            info: Pairs,
        } => {
            Line "unpublish_name" [service = "service"],
            Frame "name-unpublish" [service = "name", info = "info"]
        }
    }
}
