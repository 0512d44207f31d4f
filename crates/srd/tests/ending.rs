//! Queues and queue pairs that end in several threads while messages and events for them come.

use crate::common::{PATIENCE, QKEY, THREAD};
use srd::{CompletionChannel, CqInit, Device, DeviceConfig, QpInit, Qpn, RecvWr, SendWr};
use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

const THREADS: u64 = 4;
const ROUNDS: u64 = 40;

fn device(shards: u16) -> Device {
    let mut config = DeviceConfig::loopback();
    (config.shards, config.progress) = (shards, THREAD);
    (config.paths, config.key_file) = (4, None);
    Device::open(config).unwrap()
}

/// Makes a queue and queue pairs on several shards, has each sent a message, and ends them all at
/// any time before or after it comes.
fn receivers_end(device: &Device, channel: &CompletionChannel, n: u64, ask: &mpsc::Sender<Qpn>) {
    let pd = device.pd_create().unwrap();
    for round in 0..ROUNDS {
        let init = CqInit { depth: 16, channel: Some(channel), context: n };
        let cq = device.cq_create_ex(&init).unwrap();
        let qps = [0, 1, 2].map(|_| pd.qp_create(&QpInit::srd(&cq, &cq)).unwrap());
        cq.req_notify().unwrap();
        for qp in &qps {
            qp.activate(QKEY).unwrap();
            qp.post_recv(&RecvWr { wr_id: n, sges: &[] }).unwrap();
            ask.send(qp.qpn()).unwrap();
        }
        thread::sleep(Duration::from_micros(37 * (round % 8)));
        while let Some(wc) = cq.poll_one().unwrap() {
            assert_eq!(wc.wr_id, n, "a completion of another queue");
        }
        drop(qps);
        drop(cq);
    }
}

#[test]
fn queues_end_while_their_events_come() {
    let (a, b) = (device(2), device(4));
    let channel = b.channel_create().unwrap();
    let (ask, asked) = mpsc::channel();
    let asked = Mutex::new(asked);
    let done = AtomicBool::new(false);
    let (pd, cq) = (a.pd_create().unwrap(), a.cq_create(64).unwrap());
    let qp = pd.qp_create(&QpInit::srd(&cq, &cq)).unwrap();
    qp.activate(QKEY).unwrap();
    let ah = pd.ah_create(b.ip()).unwrap();
    thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let asked = asked.lock().unwrap();
            let mut ended = 0;
            while let Ok(qpn) = asked.recv() {
                qp.post_send(&SendWr::send(1, &ah, qpn, QKEY)).unwrap();
                // Whatever becomes of it, it ends.
                cq.wait(PATIENCE).unwrap().expect("a completion in time");
                ended += 1;
            }
            assert_eq!(ended, THREADS * ROUNDS * 3);
        });
        let waiter = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let event = channel.get(Some(Duration::from_millis(5))).unwrap();
                assert!(event.is_none_or(|event| event.context < THREADS), "{event:?}");
            }
        });
        let ends: Vec<_> = (0..THREADS)
            .map(|n| {
                let ask = ask.clone();
                let (b, channel) = (&b, &channel);
                scope.spawn(move || receivers_end(b, channel, n, &ask))
            })
            .collect();
        drop(ask);
        ends.into_iter().for_each(|end| end.join().unwrap());
        sender.join().unwrap();
        done.store(true, Ordering::Relaxed);
        waiter.join().unwrap();
    });
    assert_eq!(channel.try_get(), None, "an event of a queue that has ended");
    assert!(!channel.in_use(), "a queue that has ended uses the channel");
}
