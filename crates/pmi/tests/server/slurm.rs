//! The exchange under Slurm's `srun --mpi=pmi2`, byte for byte: our client writes what the clients there
//! wrote and understands what Slurm answered, and our server answers the same bytes in its own words.

use ropewalk_pmi::{
    AbsentMembers, Action, ClientCore, Dialect, GroupOptions, Pairs, Request, Response, Server,
};

use super::{GROUP, ask, ask_frame, connection, server_of};

/// A client that is told what Slurm answered, while our server is asked the same.
struct Witness {
    client: ClientCore,
    ours: Server,
}

impl Witness {
    fn new(dialect: Dialect, kvsname: &str) -> Self {
        Self {
            client: ClientCore::new(dialect),
            ours: server_of(GroupOptions {
                absent: AbsentMembers::Fail,
                ..GroupOptions::one_host(GROUP, kvsname, 2)
            }),
        }
    }

    /// The response that the client reads in Slurm's answer. All is as it was on the wire, with line ends and
    /// lengths.
    fn asks(&mut self, request: &Request, written: &str, of_slurm: &str, of_ours: &str) -> Response {
        let id = self.client.submit(std::slice::from_ref(request)).unwrap();
        assert_eq!(String::from_utf8(self.client.take_outgoing()).unwrap(), written);
        for byte in of_slurm.bytes() {
            assert_eq!(self.client.poll_response(), None, "{written:?}");
            self.client.handle_bytes(&[byte]).unwrap();
        }
        self.ours.handle_bytes(connection(0), written.as_bytes());
        assert_eq!(self.answer_of_ours(), of_ours, "{written:?}");
        let (answered, response) = self.client.poll_response().unwrap();
        assert_eq!(answered, id);
        response
    }

    /// All that our server sends to the client, as it is on the wire.
    fn answer_of_ours(&mut self) -> String {
        let mut sent = Vec::new();
        while let Some(action) = self.ours.poll_action() {
            if let Action::Send {
                connection: to,
                bytes,
            } = action
                && to == connection(0)
            {
                sent.extend_from_slice(&bytes);
            }
        }
        String::from_utf8(sent).unwrap()
    }

    /// The other process goes into the barrier first.
    fn barrier(&mut self) -> Response {
        self.ours.handle_bytes(connection(1), b"cmd=barrier_in\n");
        self.asks(
            &Request::Fence { group: None },
            "cmd=barrier_in\n",
            "cmd=barrier_out rc=0\n",
            "cmd=barrier_out\n",
        )
    }
}

fn put(key: &str, value: &str) -> Request {
    Request::Put {
        kvsname: Some("3.0".into()),
        key: key.into(),
        value: value.into(),
    }
}

fn get(kvsname: &str, source: Option<i32>, key: &str) -> Request {
    Request::Get {
        kvsname: Some(kvsname.into()),
        source,
        key: key.into(),
    }
}

/// Transcript 8.2: "Same program under `srun --mpi=pmi2`: identical requests; answers carry `rc=0` second and
/// no `msg`, e.g. `cmd=get_result rc=0 value=(vector,(0,1,2))`, `cmd=barrier_out rc=0`,
/// `cmd=finalize_ack rc=0`."
#[test]
fn golden_transcript_of_mpich_under_slurm() {
    let mut witness = Witness::new(Dialect::Pmi1, "3.0");
    let answer = ask(&mut witness.ours, 1, "cmd=init pmi_version=1 pmi_subversion=1");
    assert_eq!(answer, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0");
    let fence = Response::Fence {
        tag: None,
        rc: Some(0),
        message: None,
    };
    let found = |value: &str| Response::Get {
        found: None,
        value: Some(value.into()),
        rc: Some(0),
        message: None,
    };
    let is_put = Response::Put {
        rc: Some(0),
        message: None,
    };
    let init = witness.asks(
        &Request::Init {
            version: 1,
            subversion: 1,
            values: None,
        },
        "cmd=init pmi_version=1 pmi_subversion=1\n",
        "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n",
        "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n",
    );
    assert_eq!(
        init,
        Response::Init {
            version: 1,
            subversion: 1,
            rc: Some(0),
            values: None,
        }
    );
    let maxes = witness.asks(
        &Request::GetMaxes {},
        "cmd=get_maxes\n",
        "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024\n",
        "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n",
    );
    assert_eq!(
        maxes,
        Response::Maxes {
            kvsname_max: 256,
            key_max: 64,
            value_max: 1024,
        }
    );
    let appnum = witness.asks(
        &Request::GetAppnum {},
        "cmd=get_appnum\n",
        "cmd=appnum rc=0 appnum=-1\n",
        "cmd=appnum appnum=0\n",
    );
    assert_eq!(appnum, Response::Appnum { appnum: -1 });
    let kvsname = witness.asks(
        &Request::GetMyKvsname {},
        "cmd=get_my_kvsname\n",
        "cmd=my_kvsname rc=0 kvsname=3.0\n",
        "cmd=my_kvsname kvsname=3.0\n",
    );
    assert_eq!(
        kvsname,
        Response::MyKvsname {
            kvsname: "3.0".into(),
            rc: Some(0),
        }
    );
    let mapping = witness.asks(
        &get("3.0", None, "PMI_process_mapping"),
        "cmd=get kvsname=3.0 key=PMI_process_mapping\n",
        "cmd=get_result rc=0 value=(vector,(0,1,2))\n",
        "cmd=get_result rc=0 msg=success value=(vector,(0,1,2))\n",
    );
    assert_eq!(mapping, found("(vector,(0,1,2))"));
    assert_eq!(witness.barrier(), fence);
    for (key, value) in [
        ("-bcast-1-0", "2F6465762F73686D2F"),
        ("-allgather-shm-1-0", "20D31A91C7"),
    ] {
        let response = witness.asks(
            &put(key, value),
            &format!("cmd=put kvsname=3.0 key={key} value={value}\n"),
            "cmd=put_result rc=0\n",
            "cmd=put_result rc=0 msg=success\n",
        );
        assert_eq!(response, is_put);
        assert_eq!(witness.barrier(), fence);
    }
    let address = witness.asks(
        &get("3.0", None, "-allgather-shm-1-0"),
        "cmd=get kvsname=3.0 key=-allgather-shm-1-0\n",
        "cmd=get_result rc=0 value=20D31A91C7\n",
        "cmd=get_result rc=0 msg=success value=20D31A91C7\n",
    );
    assert_eq!(address, found("20D31A91C7"));
    assert_eq!(witness.barrier(), fence);
    let end = witness.asks(
        &Request::Finalize {},
        "cmd=finalize\n",
        "cmd=finalize_ack rc=0\n",
        "cmd=finalize_ack\n",
    );
    assert_eq!(end, Response::Finalize { rc: Some(0) });
}

/// Transcript 8.4: "libpmi2 under `srun --mpi=pmi2`", whose server pads lengths "on the right". "Ours: send BOTH
/// `port=p;value=p;found=TRUE;rc=0;`", of which "libpmi2 reads `value`".
#[test]
fn golden_transcript_of_libpmi2_under_slurm() {
    let mut witness = Witness::new(Dialect::Pmi2, "1.0");
    for rank in [0, 1] {
        let answer = ask(&mut witness.ours, rank, "cmd=init pmi_version=2 pmi_subversion=0");
        assert_eq!(answer, "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0");
    }
    let full_init = witness.asks(
        &Request::FullInit {
            job: Some("1.0".into()),
            rank: 0,
            threaded: Some(false),
        },
        "51    cmd=fullinit;pmijobid=1.0;pmirank=0;threaded=FALSE;",
        "114   cmd=fullinit-response;rc=0;pmi-version=2;pmi-subversion=0;rank=0;size=2;appnum=-1;debugged=FALSE;\
         pmiverbose=FALSE;",
        "113   cmd=fullinit-response;pmi-version=2;pmi-subversion=0;rank=0;size=2;appnum=0;debugged=FALSE;\
         pmiverbose=FALSE;rc=0;",
    );
    assert_eq!(
        full_init,
        Response::FullInit {
            version: Some(2),
            subversion: Some(0),
            rank: Some(0),
            size: Some(2),
            appnum: Some(-1),
            spawner: None,
            debugged: Some(false),
            verbose: Some(false),
            rc: Some(0),
            message: None,
        }
    );
    for question in [
        "cmd=fullinit;pmijobid=1.0;pmirank=1;threaded=FALSE;",
        "cmd=kvs-put;key=k-1;value=val-1;",
        "cmd=name-publish;name=svc;port=port#2;infokeycount=0;",
    ] {
        let answer = ask_frame(&mut witness.ours, 1, question);
        assert!(answer.ends_with(";rc=0;"), "{answer}");
    }
    let value = witness.asks(
        &get("1.0", Some(-1), "k-1"),
        "39    cmd=kvs-get;jobid=1.0;srcid=-1;key=k-1;",
        "49    cmd=kvs-get-response;rc=0;found=TRUE;value=val-1;",
        "49    cmd=kvs-get-response;found=TRUE;value=val-1;rc=0;",
    );
    assert_eq!(
        value,
        Response::Get {
            found: Some(true),
            value: Some("val-1".into()),
            rc: Some(0),
            message: None,
        }
    );
    let port = witness.asks(
        &Request::LookupName {
            service: "svc".into(),
            info: Pairs::default(),
        },
        "40    cmd=name-lookup;name=svc;infokeycount=0;",
        "43    cmd=name-lookup-response;rc=0;value=port#2;",
        "66    cmd=name-lookup-response;port=port#2;value=port#2;found=TRUE;rc=0;",
    );
    assert_eq!(
        port,
        Response::LookupName {
            port: None,
            value: Some("port#2".into()),
            info: None,
            found: None,
            rc: Some(0),
            message: None,
        }
    );
}
