// answer.rs - publishes its identity on the channel that each message on demo/question names.
//   rustc answer.rs && ./answer /run/bccnd/bus.sock
//   bccn pub demo/question demo/answer
// Rust's standard library has no SOCK_SEQPACKET: three calls of libc open the socket, and File reads and writes it, one
// packet a call. When the daemon restarts, it reconnects and subscribes again.
use std::fs::File;
use std::io::{Error, Read, Result, Write};
use std::os::fd::FromRawFd;
use std::{env, process, thread, time::Duration};

const AF_UNIX: i32 = 1;
const SOCK_SEQPACKET_CLOEXEC: i32 = 5 | 0o2000000;
/// The largest packet of the bus, and some more for what comes with it.
const ROOM: usize = 409_600 + 4096;

extern "C" {
    fn socket(domain: i32, kind: i32, protocol: i32) -> i32;
    fn connect(fd: i32, address: *const u8, length: u32) -> i32;
    fn signal(number: i32, handler: usize) -> usize;
}

/// A connection: one packet is one frame.
fn open(path: &str) -> Result<File> {
    let mut address = vec![0u8; 2];
    address[..2].copy_from_slice(&(AF_UNIX as u16).to_ne_bytes());
    match path.strip_prefix('@') {
        Some(name) => address.extend([b"\0", name.as_bytes()].concat()), // an abstract address
        None => address.extend([path.as_bytes(), b"\0"].concat()),
    }
    unsafe {
        let fd = socket(AF_UNIX, SOCK_SEQPACKET_CLOEXEC, 0);
        if fd < 0 {
            return Err(Error::last_os_error());
        }
        let bus = File::from_raw_fd(fd); // closes it
        if connect(fd, address.as_ptr(), address.len() as u32) < 0 {
            return Err(Error::last_os_error());
        }
        Ok(bus)
    }
}

/// What is before the first of some bytes, and what is behind it.
fn cut<'a>(text: &'a [u8], at: u8) -> (&'a [u8], &'a [u8]) {
    match text.iter().position(|one| *one == at) {
        Some(found) => (&text[..found], &text[found + 1..]),
        None => (text, &[]),
    }
}

/// Until the connection ends.
fn serve(mut bus: File, identity: &mut String) -> Result<()> {
    bus.write_all(b"CMSG !/bccn/meta/on")?;
    bus.write_all(b"CMSG !/bccn/whoami")?;
    bus.write_all(b"SUB demo/question")?;
    let mut room = vec![0u8; ROOM];
    loop {
        let size = bus.read(&mut room)?;
        if size == 0 {
            return Err(Error::new(std::io::ErrorKind::UnexpectedEof, "the daemon has ended the connection"));
        }
        let (head, payload) = cut(&room[..size], 0);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match head {
            b"CMSG !/bccn/whoami" if identity.is_empty() => {
                *identity = text(payload);
                println!("I am {identity}");
            }
            b"MSG demo/question" => {
                let (meta, question) = cut(payload, b'|'); // <src>:<seq>:<received_ns>:<peer>
                println!("{} asks on {}", text(cut(meta, b':').0), text(question));
                bus.write_all(&[b"MSG ", question, b"\0", identity.as_bytes()].concat())?;
            }
            b"CMSG !/bccn/error" => eprintln!("refused: {}", text(payload)),
            b"CMSG !/bccn/gap" if payload == b"0" => eprintln!("messages may have been lost here: the daemon has crashed"),
            b"CMSG !/bccn/gap" => eprintln!("{} messages were lost here: this reader is too slow", text(payload)),
            _ => {} // a later daemon may send more
        }
    }
}

fn main() {
    unsafe { signal(13, 1) }; // no SIGPIPE where the daemon has just ended
    let path = env::args().nth(1).expect("usage: answer SOCKET");
    let mut identity = String::new();
    loop {
        match open(&path).and_then(|bus| serve(bus, &mut identity)) {
            Err(why) if identity.is_empty() => {
                eprintln!("answer: {path}: {why}");
                process::exit(1);
            }
            Err(why) => eprintln!("answer: {path}: {why}"),
            Ok(()) => unreachable!(),
        }
        thread::sleep(Duration::from_millis(500));
    }
}
