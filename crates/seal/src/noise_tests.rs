//! The handshake against a published vector of cacophony (a Haskell implementation of Noise by
//! another author), as distributed with the vectors of several Noise libraries.

use super::*;

fn hex<const N: usize>(text: &str) -> [u8; N] {
    let bytes: Vec<u8> = (0..text.len() / 2)
        .map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).expect("hex"))
        .collect();
    bytes.try_into().expect("the length is right")
}

const PROLOGUE: &[u8] = b"John Galt";
const PSK: &[u8; 32] = b"This is my Austrian perspective!";
const INITIATOR: &str = "893e28b9dc6ca8d611ab664754b8ceb7bac5117349a4439a6b0569da977c464a";
const RESPONDER: &str = "bbdb4cdbd309f1a1f2e1456967fe288cadd6f712d65dc7b7793d5e63da6b375b";

fn psk() -> Secret {
    Secret::take(&mut PSK.clone())
}

fn ephemeral(text: &str) -> Ephemeral {
    Ephemeral::take(&mut hex(text))
}

/// The cipher of the transport phase, which this crate does not use: the keys come out of the same
/// split.
fn transport(key: &Secret, number: u64, text: &[u8]) -> Vec<u8> {
    let cipher = LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, key.bytes()).unwrap());
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&number.to_le_bytes());
    let mut sealed = text.to_vec();
    let nonce = Nonce::assume_unique_for_key(nonce);
    cipher.seal_in_place_append_tag(nonce, Aad::empty(), &mut sealed).unwrap();
    sealed
}

#[test]
fn cacophony_vector() {
    let mut first = [0; 64];
    let payload = b"Ludwig von Mises";
    let opening = Opening::new(&psk(), PROLOGUE, ephemeral(INITIATOR), payload, &mut first);
    assert_eq!(
        first,
        hex::<64>(
            "ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c794479b962b8aff8485742ac32\
             f905ba45369e2465fb59e138a93d67a0d1266b6a54"
        )
    );

    let mut read = [0; 16];
    let received = Received::new(&psk(), PROLOGUE, &first, &mut read).unwrap();
    assert_eq!(&read, payload);
    let (payload, mut second) = (b"Murray Rothbard", [0; 63]);
    let at_responder = received.answer(ephemeral(RESPONDER), payload, &mut second).unwrap();
    assert_eq!(
        second,
        hex::<63>(
            "95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f144808843d6062704d5a9c422a8e834\
             423f8c1feada7e8d0d910a1a2cd030fb584221e3"
        )
    );

    let mut read = [0; 15];
    let at_initiator = opening.finish(&second, &mut read).unwrap();
    assert_eq!(&read, payload);
    for split in [&at_initiator, &at_responder] {
        assert_eq!(
            split.hash,
            hex("f4d03dc34495c95729ea6de9e1b59004b59733102488b3e24bc441e0be208eaf")
        );
        // The first and the last message of each direction.
        let sent = [
            (
                &split.from_initiator,
                0,
                &b"F. A. Hayek"[..],
                "e632c3763d7669067383433197a3baddf146e9\
             e70ad4b4e9e59e0f",
            ),
            (
                &split.from_responder,
                0,
                b"Carl Menger",
                "64c6bee32ea91c8474bb4c21d7a700109ad45af77b\
             29764ba5eb1e",
            ),
            (
                &split.from_initiator,
                1,
                b"Jean-Baptiste Say",
                "e2fa0bed0603b62d3ccac2ecabbf3fe33f3e\
             86514909b323361626266cb2471cc8",
            ),
        ];
        for (key, number, text, sealed) in sent {
            let made: String =
                transport(key, number, text).iter().map(|b| format!("{b:02x}")).collect();
            assert_eq!(made, sealed);
        }
    }
}

#[test]
fn shares_of_small_order_are_refused_at_both_ends() {
    // The points 0 and 1, and one of order 8 (RFC 7748, section 6.1, and its security
    // considerations), give a secret of zeros whatever the private share is.
    let of_order_8 = hex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800");
    let mut one = [0; 32];
    one[0] = 1;
    for share in [[0; 32], one, of_order_8] {
        let mut state = Symmetric::new(PROLOGUE, &psk());
        let private = ephemeral(INITIATOR).private();
        assert_eq!(state.agreement_mix(&private, &share), Err(Refusal::Share));
    }
}

#[test]
fn a_refused_answer_leaves_the_opening_as_it_was() {
    let (mut first, mut read) = ([0; 52], [0; 4]);
    let opening = Opening::new(&psk(), PROLOGUE, ephemeral(INITIATOR), b"open", &mut first);
    let received = Received::new(&psk(), PROLOGUE, &first, &mut read).unwrap();
    let mut second = [0; 51];
    received.answer(ephemeral(RESPONDER), b"ack", &mut second).unwrap();
    for at in 0..second.len() {
        let mut damaged = second;
        damaged[at] ^= 1;
        assert!(opening.finish(&damaged, &mut [0; 3]).is_err(), "byte {at}");
    }
    let mut read = [0; 3];
    assert!(opening.finish(&second, &mut read).is_ok());
    assert_eq!(&read, b"ack");
}
