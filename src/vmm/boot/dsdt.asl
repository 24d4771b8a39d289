// The machine's devices as the guest's ACPI sees them. Numbers: vmm/layout.h.
DefinitionBlock ("", "DSDT", 2, "RAMET ", "RAMETVM ", 1)
{
  Name (\_S5, Package (4) { 5, 0, 0, 0 })

  Scope (\_SB)
  {
    // Hardware-reduced ACPI knows no legacy IRQ 4: without this the console would be polled.
    Device (COM1)
    {
      Name (_HID, EisaId ("PNP0501"))
      Name (_UID, 0)
      Name (_CRS, ResourceTemplate () {
        IO (Decode16, 0x03F8, 0x03F8, 1, 8)
        Interrupt (ResourceConsumer, Edge, ActiveHigh, Exclusive) { 4 }
      })
    }

    Device (VIO0)   // block
    {
      Name (_HID, "LNRO0005")
      Name (_UID, 0)
      Name (_CCA, 1)
      Name (_CRS, ResourceTemplate () {
        Memory32Fixed (ReadWrite, 0xD0000000, 0x1000)
        Interrupt (ResourceConsumer, Edge, ActiveHigh, Exclusive) { 16 }
      })
    }
    Device (VIO1)   // vsock
    {
      Name (_HID, "LNRO0005")
      Name (_UID, 1)
      Name (_CCA, 1)
      Name (_CRS, ResourceTemplate () {
        Memory32Fixed (ReadWrite, 0xD0001000, 0x1000)
        Interrupt (ResourceConsumer, Edge, ActiveHigh, Exclusive) { 17 }
      })
    }
    Device (VIO2)   // rng
    {
      Name (_HID, "LNRO0005")
      Name (_UID, 2)
      Name (_CCA, 1)
      Name (_CRS, ResourceTemplate () {
        Memory32Fixed (ReadWrite, 0xD0002000, 0x1000)
        Interrupt (ResourceConsumer, Edge, ActiveHigh, Exclusive) { 18 }
      })
    }
    Device (VIO3)   // balloon
    {
      Name (_HID, "LNRO0005")
      Name (_UID, 3)
      Name (_CCA, 1)
      Name (_CRS, ResourceTemplate () {
        Memory32Fixed (ReadWrite, 0xD0003000, 0x1000)
        Interrupt (ResourceConsumer, Edge, ActiveHigh, Exclusive) { 19 }
      })
    }

    Device (VGEN)
    {
      Name (_HID, "RMTC0001")          // an id of our own: the compiler refuses the customary one as a _HID
      Name (_CID, "VM_Gen_Counter")
      Name (_DDN, "VM_Gen_Counter")
      Name (ADDR, Package (2) { 0x000EF000, 0 })
    }
    Device (PWRB)
    {
      Name (_HID, EisaId ("PNP0C0C"))
      Name (_UID, 0)
    }
    Device (GED0)
    {
      Name (_HID, "ACPI0013")
      Name (_UID, 0)
      Name (_CRS, ResourceTemplate () {
        Interrupt (ResourceConsumer, Edge, ActiveHigh, Exclusive) { 20 }
        Interrupt (ResourceConsumer, Edge, ActiveHigh, Exclusive) { 21 }
      })
      Method (_EVT, 1, Serialized)
      {
        If (LEqual (Arg0, 20)) { Notify (\_SB.VGEN, 0x80) }
        If (LEqual (Arg0, 21)) { Notify (\_SB.PWRB, 0x80) }
      }
    }
  }
}
