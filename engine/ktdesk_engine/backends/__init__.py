"""The operations of a layer on a device."""
