// The session is the library's face: trapless/session.h.
#ifndef TL_SESSION_SESSION_H
#define TL_SESSION_SESSION_H

#include "trapless/session.h"

#endif
