//! TCP as the Linux kernel's: one path per connection, or with [`TcpConfig::subflows`] several
//! (Multipath TCP).

mod bundle;
mod cc;
mod config;
mod host;
mod joined;
mod net;
mod receiver;
mod report;
mod rtt;
mod segment;
mod sender;

pub use cc::bbr::BbrMode;
pub use config::{Algorithm, ConfigError, Recovery, Scheduler, SlowStart, TcpConfig};
pub use host::TcpHost;
pub use net::{NetError, Round, TcpNet};
pub use receiver::Receiver;
pub use report::{Conn, Counters, Message, MessageId};
pub use segment::{Ack, SACK_BLOCKS, TcpSegment};
pub use sender::{Sender, State};
